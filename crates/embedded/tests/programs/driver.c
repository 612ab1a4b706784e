// A driver with a few functions, for tests of the guard. It returns numbers instead of memory, at no cost of time.
//
// GPU n has 80 GiB and the UUID of sixteen bytes 0x10 + n.

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define DEVICES 4
#define GIB ((size_t)1 << 30)

static int initialized;
static int primary_references[DEVICES];
static size_t used[DEVICES];
static uint64_t next_pointer = 0x700000000000;
static struct { uint64_t pointer; size_t bytes; int device; } blocks[4096];
static struct context { int device; int alive; } primaries[DEVICES], contexts[64];
static __thread struct context *current;
long launched;

int cuInit(unsigned flags) { if (flags) return 1; initialized = 1; return 0; }
int cuDriverGetVersion(int *version) { *version = 13000; return 0; }
int cuDeviceGetCount(int *count) { if (!initialized) return 3; *count = DEVICES; return 0; }
int cuDeviceGet(int *device, int ordinal) { if (!initialized) return 3; if (ordinal >= DEVICES) return 101; *device = ordinal; return 0; }
int cuDeviceGetUuid_v2(void *uuid, int device) { if (!initialized) return 3; memset(uuid, 0x10 + device, 16); return 0; }
int cuDeviceTotalMem_v2(size_t *bytes, int device) { (void)device; *bytes = 80 * GIB; return 0; }
int cuMemGetInfo_v2(size_t *free_bytes, size_t *total) {
    if (!current) return 201;
    *total = 80 * GIB;
    *free_bytes = *total - used[current->device];
    return 0;
}
int cuCtxGetCurrent(void **context) { if (!initialized) return 3; *context = current; return 0; }
int cuCtxGetDevice(int *device) { if (!initialized) return 3; if (!current) return 201; *device = current->device; return 0; }
int cuCtxSetCurrent(void *context) { if (!initialized) return 3; current = context; return 0; }
int cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *active) { *flags = 0; *active = primary_references[device] > 0; return 0; }

static void end(struct context *context) {
    for (int i = 0; i < 4096; i++)
        if (blocks[i].pointer && context == &primaries[blocks[i].device]) {
            used[blocks[i].device] -= blocks[i].bytes;
            blocks[i].pointer = 0;
        }
    if (current == context) current = NULL;
}

// Simulates another thread just before the next context is retained.
void (*before_retain)(void);

int cuDevicePrimaryCtxRetain(void **context, int device) {
    if (!initialized) return 3;
    void (*call)(void) = before_retain;
    before_retain = NULL;
    if (call) call();
    primary_references[device]++;
    primaries[device].device = device;
    *context = &primaries[device];
    return 0;
}
int cuDevicePrimaryCtxRelease_v2(int device) {
    if (!primary_references[device]) return 201;
    if (!--primary_references[device]) end(&primaries[device]);
    return 0;
}
int cuDevicePrimaryCtxReset_v2(int device) { primary_references[device] = 0; end(&primaries[device]); return 0; }
int cuCtxCreate_v2(void **context, unsigned flags, int device) {
    (void)flags;
    if (!initialized) return 3;
    for (int i = 0; i < 64; i++)
        if (!contexts[i].alive) {
            contexts[i].alive = 1;
            contexts[i].device = device;
            *context = current = &contexts[i];
            return 0;
        }
    return 2;
}
int cuCtxDestroy_v2(void *context) { ((struct context *)context)->alive = 0; end(context); return 0; }

int cuMemAlloc_v2(uint64_t *pointer, size_t bytes) {
    if (!initialized) return 3;
    if (!current) return 201;
    if (!bytes) return 1;
    // A driver may refuse what the guard admits: here, an odd number of bytes.
    if (bytes % 2 || used[current->device] + bytes > 80 * GIB) return 2;
    for (int i = 0; i < 4096; i++)
        if (!blocks[i].pointer) {
            blocks[i].pointer = *pointer = next_pointer;
            blocks[i].bytes = bytes;
            blocks[i].device = current->device;
            next_pointer += (bytes + 0x1fffff) & ~(size_t)0x1fffff;
            used[current->device] += bytes;
            return 0;
        }
    return 2;
}
int cuMemAllocManaged(uint64_t *pointer, size_t bytes, unsigned flags) { (void)flags; return cuMemAlloc_v2(pointer, bytes + 0); }
int cuMemAllocPitch_v2(uint64_t *pointer, size_t *pitch, size_t width, size_t height, unsigned element) {
    (void)element;
    *pitch = (width + 1023) / 1024 * 1024;
    return cuMemAlloc_v2(pointer, *pitch * height);
}
int cuMemFree_v2(uint64_t pointer) {
    for (int i = 0; i < 4096; i++)
        if (pointer && blocks[i].pointer == pointer) {
            used[blocks[i].device] -= blocks[i].bytes;
            blocks[i].pointer = 0;
            return 0;
        }
    return 1;
}
int cuLaunchKernel(void *f, unsigned a, unsigned b, unsigned c, unsigned d, unsigned e, unsigned g, unsigned h, void *s, void **p, void **x) {
    (void)f; (void)a; (void)b; (void)c; (void)d; (void)e; (void)g; (void)h; (void)s; (void)p; (void)x;
    launched++;
    return 0;
}
int cuLaunchKernel_ptsz(void *f, unsigned a, unsigned b, unsigned c, unsigned d, unsigned e, unsigned g, unsigned h, void *s, void **p, void **x) {
    launched += 2;
    return cuLaunchKernel(f, a, b, c, d, e, g, h, s, p, x) + (launched < 0);
}
int cuGraphLaunch(void *graph, void *stream) { (void)graph; (void)stream; launched += 4; return 0; }

// Functions unknown to every guard, with seven arguments to check that none is lost.
long cuMemNovelAlloc(long a, long b, long c, long d, long e, long f, long g) { return a + 10 * b + 100 * c + 1000 * d + 10000 * e + 100000 * f + 1000000 * g; }
int cuLaunchNovelKernel(double a, double b) { return (int)(a * 100 + b); }

// cuMemAlloc for programs of a CUDA version unknown to every guard, with other arguments.
int cuMemAlloc_v3(int device, uint64_t *pointer, size_t bytes) { (void)device; return cuMemAlloc_v2(pointer, bytes); }

// Not exported; programs get it by name only, at another address than the hooked function.
static int own_cuMemAlloc(uint64_t *pointer, size_t bytes) { return cuMemAlloc_v2(pointer, bytes) + (bytes == 1); }

int cuGetProcAddress_v2(const char *name, void **function, int version, uint64_t flags, unsigned *found);
int cuGetProcAddress(const char *name, void **function, int version, uint64_t flags) {
    static const struct { const char *name; void *plain; void *per_thread; int since; } table[] = {
        {"cuInit", cuInit, 0, 2000}, {"cuDeviceGet", cuDeviceGet, 0, 2000},
        {"cuMemAlloc", cuMemAlloc_v3, 0, 14000},
        {"cuMemAlloc", cuMemAlloc_v2, 0, 3020}, {"cuMemFree", cuMemFree_v2, 0, 3020},
        {"cuMemGetInfo", cuMemGetInfo_v2, 0, 3020},
        {"cuLaunchKernel", cuLaunchKernel, cuLaunchKernel_ptsz, 4000},
        {"cuCtxCreate", cuCtxCreate_v2, 0, 3020}, {"cuMemNovelAlloc", cuMemNovelAlloc, 0, 13000},
        {"cuLaunchNovelKernel", cuLaunchNovelKernel, 0, 13000},
        {"cuGetProcAddress", cuGetProcAddress, 0, 11030},
        // An address that is not exported, as a driver might return.
        {"cuMemAllocManaged", own_cuMemAlloc, 0, 6000},
    };
    if (!strcmp(name, "cuGetProcAddress") && version >= 12000) { *function = cuGetProcAddress_v2; return 0; }
    // The runtime library's first request has no name.
    if (!*name) { *function = NULL; return 0; }
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (!strcmp(name, table[i].name) && version >= table[i].since) {
            *function = (flags & 2) && table[i].per_thread ? table[i].per_thread : table[i].plain;
            return 0;
        }
    *function = NULL;
    return 500;
}
int cuGetProcAddress_v2(const char *name, void **function, int version, uint64_t flags, unsigned *found) {
    int status = cuGetProcAddress(name, function, version, flags);
    if (found) *found = status ? 1 : 0;
    return status;
}
