/* Makes the CUDA calls that it is told to on standard input, one line each, and says `done` after each. The libraries are
   loaded when it is told to, as engines do.

   load DRIVER RUNTIME | call NAME COUNT BYTES | threads COUNT (four, the driver's and the runtime's launches in turn) */
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct { unsigned x, y, z; } dim3;
typedef struct { dim3 grid, block; size_t shared; void *stream; } cudaLaunchConfig_t;

static void *driver, *runtime;
static uint64_t held[1 << 16], handles[1 << 10];
static size_t count_held, count_handles;

static void *entry(void *library, const char *name)
{
    void *at = dlsym(library, name);
    if (!at) {
        fprintf(stderr, "no %s\n", name);
        exit(2);
    }
    return at;
}
#define D(type, name) ((type)entry(driver, name))
#define R(type, name) ((type)entry(runtime, name))
typedef int (*launch_t)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **);
typedef int (*rt_launch_t)(const void *, dim3, dim3, void **, size_t, void *);
typedef int (*two_t)(void *, void *);
typedef int (*alloc_t)(uint64_t *, size_t);
typedef int (*free_t)(uint64_t);
typedef int (*copy_t)(uint64_t, uint64_t, size_t, uint64_t, uint64_t);
typedef int (*peer_t)(uint64_t, void *, uint64_t, void *, size_t, void *);

static const dim3 one = {1, 1, 1};
static void *stream(size_t i) { return (void *)(0x1000 + (i % 3) * 0x100); }

static int is(const char *a, const char *b) { return !strcmp(a, b); }

static void call(const char *name, size_t n, size_t bytes)
{
    static const int host_to_device = 1, device_to_host = 2;
    size_t i;
    if (is(name, "driver_launch")) {
        launch_t f = D(launch_t, "cuLaunchKernel");
        for (i = 0; i < n; i++)
            f(0, 1, 1, 1, 1, 1, 1, 0, stream(i), 0, 0);
    } else if (is(name, "driver_launch_ptsz")) {
        launch_t f = D(launch_t, "cuLaunchKernel_ptsz");
        for (i = 0; i < n; i++)
            f(0, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0);
    } else if (is(name, "driver_launch_ex")) {
        unsigned char config[56] = {0};
        *(void **)(config + 32) = stream(0);
        two_t f = D(two_t, "cuLaunchKernelEx");
        for (i = 0; i < n; i++)
            ((int (*)(const void *, void *, void **, void **))f)(config, 0, 0, 0);
    } else if (is(name, "driver_graph")) {
        two_t f = D(two_t, "cuGraphLaunch");
        for (i = 0; i < n; i++)
            f(0, stream(0));
    } else if (is(name, "driver_alloc") || is(name, "driver_alloc_managed")) {
        alloc_t f = D(alloc_t, is(name, "driver_alloc") ? "cuMemAlloc_v2" : "cuMemAllocManaged");
        for (i = 0; i < n; i++)
            if (!f(&held[count_held], bytes))
                count_held++;
    } else if (is(name, "driver_alloc_pitch")) {
        size_t pitch;
        int (*f)(uint64_t *, size_t *, size_t, size_t, unsigned) = (void *)D(two_t, "cuMemAllocPitch_v2");
        for (i = 0; i < n; i++)
            if (!f(&held[count_held], &pitch, bytes, 3, 4))
                count_held++;
    } else if (is(name, "driver_free")) {
        free_t f = D(free_t, "cuMemFree_v2");
        for (i = 0; i < n && count_held; i++)
            f(held[--count_held]);
    } else if (is(name, "driver_free_unknown")) {
        free_t f = D(free_t, "cuMemFree_v2");
        for (i = 0; i < n; i++)
            f(0x42000 + i);
    } else if (is(name, "driver_h2d")) {
        copy_t f = D(copy_t, "cuMemcpyHtoD_v2");
        for (i = 0; i < n; i++)
            f(1, 2, bytes, 0, 0);
    } else if (is(name, "driver_any")) {
        copy_t f = D(copy_t, "cuMemcpyAsync");
        for (i = 0; i < n; i++)
            f(1, 2, bytes, (uint64_t)stream(i), 0);
    } else if (is(name, "driver_d2d")) {
        copy_t f = D(copy_t, "cuMemcpyDtoDAsync_v2");
        for (i = 0; i < n; i++)
            f(1, 2, bytes, (uint64_t)stream(i), 0);
    } else if (is(name, "driver_peer")) {
        peer_t f = D(peer_t, "cuMemcpyPeerAsync");
        for (i = 0; i < n; i++)
            f(1, 0, 2, 0, bytes, stream(i));
    } else if (is(name, "driver_2d")) {
        unsigned char d[128] = {0};
        *(uint32_t *)(d + 16) = 1, *(uint32_t *)(d + 72) = 2;
        *(uint64_t *)(d + 112) = bytes, *(uint64_t *)(d + 120) = 2;
        free_t f = D(free_t, "cuMemcpy2D_v2");
        for (i = 0; i < n; i++)
            f((uint64_t)d);
    } else if (is(name, "driver_3d")) {
        unsigned char d[200] = {0};
        *(uint32_t *)(d + 32) = 2, *(uint32_t *)(d + 120) = 1;
        *(uint64_t *)(d + 176) = bytes, *(uint64_t *)(d + 184) = 2, *(uint64_t *)(d + 192) = 2;
        two_t f = D(two_t, "cuMemcpy3DAsync_v2");
        for (i = 0; i < n; i++)
            f(d, stream(0));
    } else if (is(name, "driver_create")) {
        int (*create)(uint64_t *, size_t, void *, uint64_t) = (void *)D(two_t, "cuMemCreate");
        int (*map)(uint64_t, size_t, size_t, uint64_t, uint64_t) = (void *)D(two_t, "cuMemMap");
        free_t release = D(free_t, "cuMemRelease");
        for (i = 0; i < n; i++) {
            create(&handles[count_handles], bytes, 0, 0);
            map(0x500000000000ull + count_handles * bytes, bytes, 0, handles[count_handles], 0);
            release(handles[count_handles++]);
        }
    } else if (is(name, "driver_unmap")) {
        int (*unmap)(uint64_t, size_t) = (void *)D(two_t, "cuMemUnmap");
        unmap(0x500000000000ull, n * bytes);
    } else if (is(name, "driver_sync")) {
        two_t f = D(two_t, "cuStreamSynchronize");
        for (i = 0; i < n; i++)
            f(stream(0), 0);
    } else if (is(name, "launch")) {
        rt_launch_t f = R(rt_launch_t, "cudaLaunchKernel");
        for (i = 0; i < n; i++)
            f(0, one, one, 0, 0, stream(i));
    } else if (is(name, "launch_ex")) {
        cudaLaunchConfig_t config = {one, one, 0, stream(1)};
        int (*f)(const cudaLaunchConfig_t *, const void *, void **) = (void *)R(two_t, "cudaLaunchKernelExC");
        for (i = 0; i < n; i++)
            f(&config, 0, 0);
    } else if (is(name, "graph")) {
        two_t f = R(two_t, "cudaGraphLaunch");
        for (i = 0; i < n; i++)
            f(0, stream(0));
    } else if (is(name, "alloc")) {
        alloc_t f = R(alloc_t, "cudaMalloc");
        for (i = 0; i < n; i++)
            if (!f(&held[count_held], bytes))
                count_held++;
    } else if (is(name, "free")) {
        free_t f = R(free_t, "cudaFree");
        for (i = 0; i < n && count_held; i++)
            f(held[--count_held]);
    } else if (is(name, "free_nothing")) {
        free_t f = R(free_t, "cudaFree");
        for (i = 0; i < n; i++)
            f(0);
    } else if (is(name, "h2d") || is(name, "d2h")) {
        copy_t f = R(copy_t, "cudaMemcpy");
        for (i = 0; i < n; i++)
            f(1, 2, bytes, is(name, "h2d") ? host_to_device : device_to_host, 0);
    } else if (is(name, "d2h_async")) {
        copy_t f = R(copy_t, "cudaMemcpyAsync");
        for (i = 0; i < n; i++)
            f(1, 2, bytes, device_to_host, (uint64_t)stream(i));
    } else if (is(name, "to_symbol")) {
        copy_t f = R(copy_t, "cudaMemcpyToSymbol");
        for (i = 0; i < n; i++)
            f(1, 2, bytes, 0, host_to_device);
    } else if (is(name, "sync")) {
        two_t f = R(two_t, "cudaStreamSynchronize");
        for (i = 0; i < n; i++)
            f(stream(0), 0);
    } else {
        fprintf(stderr, "what is %s?\n", name);
        exit(2);
    }
}

static void *both(void *count)
{
    launch_t f = D(launch_t, "cuLaunchKernel");
    rt_launch_t g = R(rt_launch_t, "cudaLaunchKernel");
    for (size_t i = 0; i < *(size_t *)count; i += 2) {
        f(0, 1, 1, 1, 1, 1, 1, 0, stream(i), 0, 0);
        g(0, one, one, 0, 0, stream(i));
    }
    return 0;
}

int main(void)
{
    static char line[4096], name[1024], other[1024];
    size_t n, bytes;
    while (fgets(line, sizeof line, stdin)) {
        if (sscanf(line, "load %1023s %1023s", name, other) == 2) {
            driver = dlopen(name, RTLD_NOW | RTLD_GLOBAL);
            runtime = driver ? dlopen(other, RTLD_NOW) : 0;
            if (!runtime) {
                fprintf(stderr, "%s\n", dlerror());
                return 2;
            }
        } else if (sscanf(line, "call %1023s %zu %zu", name, &n, &bytes) == 3) {
            call(name, n, bytes);
        } else if (sscanf(line, "threads %zu", &n) == 1) {
            pthread_t threads[4];
            for (int i = 0; i < 4; i++)
                pthread_create(&threads[i], 0, both, &n);
            for (int i = 0; i < 4; i++)
                pthread_join(threads[i], 0);
        }
        puts("done");
        fflush(stdout);
    }
    return 0;
}
