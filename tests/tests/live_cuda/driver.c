/* A libcuda.so.1 for the probes: the exported functions and their arguments are CUDA's, and nothing is computed. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef uint64_t CUdeviceptr;
enum { SUCCESS = 0, INVALID = 1, OUT_OF_MEMORY = 2, NOT_FOUND = 500 };

/* More than this is not there. */
#define MEMORY (1ull << 40)

static uint64_t next_address = 0x700000000000ull;

/* What the exported functions jump to, as in the real library; a runtime that was given these gets by the exported ones. */
#define INNER static __attribute__((noinline))
INNER int launch(void) { __asm__ volatile(""); return SUCCESS; }
INNER int allocate(CUdeviceptr *to, size_t bytes)
{
    if (bytes > MEMORY)
        return OUT_OF_MEMORY;
    *to = __atomic_fetch_add(&next_address, (bytes + 511) & ~511ull, __ATOMIC_RELAXED);
    return SUCCESS;
}
INNER int inner_launch_kernel(void *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                              unsigned shared, void *stream, void **params, void **extra)
{
    return launch();
}
INNER int inner_graph_launch(void *graph, void *stream) { return launch(); }
INNER int inner_alloc(CUdeviceptr *to, size_t bytes) { return allocate(to, bytes); }
INNER int inner_free(CUdeviceptr at) { return launch(); }
INNER int inner_htod(CUdeviceptr to, const void *from, size_t bytes) { return launch(); }
INNER int inner_dtoh_async(void *to, CUdeviceptr from, size_t bytes, void *stream) { return launch(); }
INNER int inner_synchronize(void *stream) { usleep(2000); return SUCCESS; }

int cuInit(unsigned flags) { return SUCCESS; }
int cuLaunchKernel(void *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared,
                   void *stream, void **params, void **extra)
{
    return inner_launch_kernel(f, gx, gy, gz, bx, by, bz, shared, stream, params, extra);
}
int cuLaunchKernel_ptsz(void *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                        unsigned shared, void *stream, void **params, void **extra)
{
    return inner_launch_kernel(f, gx, gy, gz, bx, by, bz, shared, stream, params, extra);
}
int cuLaunchKernelEx(const void *config, void *f, void **params, void **extra) { return launch(); }
int cuGraphLaunch(void *graph, void *stream) { return inner_graph_launch(graph, stream); }
int cuMemAlloc_v2(CUdeviceptr *to, size_t bytes) { return inner_alloc(to, bytes); }
/* The same function under another name. */
int cuMemAllocManaged(CUdeviceptr *to, size_t bytes) __attribute__((alias("cuMemAlloc_v2")));
int cuMemAllocAsync(CUdeviceptr *to, size_t bytes, void *stream) { return allocate(to, bytes); }
int cuMemAllocPitch_v2(CUdeviceptr *to, size_t *pitch, size_t width, size_t height, unsigned element)
{
    *pitch = (width + 511) & ~511ull;
    return allocate(to, *pitch * height);
}
int cuMemFree_v2(CUdeviceptr at) { return inner_free(at); }
int cuMemFreeAsync(CUdeviceptr at, void *stream) { return launch(); }
int cuMemcpyHtoD_v2(CUdeviceptr to, const void *from, size_t bytes) { return inner_htod(to, from, bytes); }
int cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t bytes, void *stream)
{
    return inner_dtoh_async(to, from, bytes, stream);
}
int cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes, void *stream) { return launch(); }
int cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, void *stream) { return launch(); }
int cuMemcpyPeerAsync(CUdeviceptr to, void *c, CUdeviceptr from, void *d, size_t bytes, void *stream) { return launch(); }
int cuMemcpy2D_v2(const void *description) { return launch(); }
int cuMemcpy3DAsync_v2(const void *description, void *stream) { return launch(); }
int cuMemCreate(uint64_t *handle, size_t bytes, const void *properties, uint64_t flags) { return allocate(handle, bytes); }
int cuMemMap(CUdeviceptr at, size_t bytes, size_t offset, uint64_t handle, uint64_t flags) { return launch(); }
int cuMemUnmap(CUdeviceptr at, size_t bytes) { return launch(); }
int cuMemRelease(uint64_t handle) { return launch(); }
int cuStreamSynchronize(void *stream) { return inner_synchronize(stream); }
int cuCtxSynchronize(void) { return inner_synchronize(0); }

int cuGetProcAddress_v2(const char *name, void **function, int version, uint64_t flags, int *status)
{
    struct { const char *name; void *function; } inner[] = {
        {"cuLaunchKernel", inner_launch_kernel}, {"cuGraphLaunch", inner_graph_launch}, {"cuMemAlloc", inner_alloc},
        {"cuMemFree", inner_free}, {"cuMemcpyHtoD", inner_htod}, {"cuMemcpyDtoHAsync", inner_dtoh_async},
        {"cuStreamSynchronize", inner_synchronize},
    };
    for (unsigned i = 0; i < sizeof inner / sizeof *inner; i++)
        if (!strcmp(name, inner[i].name)) {
            *function = inner[i].function;
            return SUCCESS;
        }
    return NOT_FOUND;
}
