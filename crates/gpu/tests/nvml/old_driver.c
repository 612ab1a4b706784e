/*
 * A driver library from before most functions: one A100 40 GB with two MIG profiles, and no
 * brand, architecture, events, links, fabric, health or words for errors. With VERSIONED it also
 * has the profile call that checks the version of its structure; with MIG_ON the mode is on; with
 * PROCESSES it lists forty that compute, of which one draws as well, and says nothing of MPS; with
 * IDLE it lists none, in the second version of the call.
 */
#include <stdio.h>

enum { OK = 0, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, VERSION_MISMATCH = 25, UNKNOWN = 999 };

struct pci {
    char legacy[16];
    unsigned domain, bus, device, id, subsystem;
    char bus_id[32];
};
struct memory {
    unsigned long long total, free, used;
};
struct profile {
    unsigned id, p2p, slices, instances, multiprocessors, copy, decode, encode, jpeg, ofa;
    unsigned long long memory_mb;
};
struct profile_v2 {
    unsigned version, id, p2p, slices, instances, multiprocessors, copy, decode, encode, jpeg, ofa;
    unsigned long long memory_mb;
    char name[96];
};
struct placement {
    unsigned start, size;
};

static int gpu;

static int text(char *buffer, unsigned length, const char *words) {
    snprintf(buffer, length, "%s", words);
    return OK;
}

int nvmlInitWithFlags(unsigned flags) { return OK; }
int nvmlShutdown(void) { return OK; }
int nvmlSystemGetDriverVersion(char *b, unsigned n) { return text(b, n, "470.256.02"); }
int nvmlSystemGetNVMLVersion(char *b, unsigned n) { return text(b, n, "11.470.256.02"); }
int nvmlSystemGetCudaDriverVersion_v2(int *version) { *version = 11040; return OK; }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = 1; return OK; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) {
    *device = &gpu;
    return index == 0 ? OK : INVALID_ARGUMENT;
}
int nvmlDeviceGetHandleByUUID(const char *uuid, void **device) {
    *device = &gpu;
    return uuid[0] == 'G' ? OK : UNKNOWN;
}
int nvmlDeviceGetUUID(void *d, char *b, unsigned n) { (void)d; return text(b, n, "GPU-old"); }
int nvmlDeviceGetName(void *d, char *b, unsigned n) { (void)d; return text(b, n, "A100-SXM4-40GB"); }
int nvmlDeviceGetMinorNumber(void *d, unsigned *minor) { (void)d; *minor = 0; return OK; }
int nvmlDeviceGetCudaComputeCapability(void *d, int *major, int *minor) {
    (void)d;
    *major = 8;
    *minor = 0;
    return OK;
}
int nvmlDeviceGetPciInfo_v3(void *d, struct pci *pci) {
    (void)d;
    *pci = (struct pci){"0000:C1:00.1", 0, 0xc1, 0, 0x20b010de, 0, "00000000:C1:00.1"};
    return OK;
}
int nvmlDeviceGetMemoryInfo(void *d, struct memory *memory) {
    (void)d;
    *memory = (struct memory){40960ull << 20, 0, 450ull << 20};
    return OK;
}
int nvmlDeviceGetNumGpuCores(void *d, unsigned *cores) { (void)d; *cores = 6912; return OK; }
int nvmlDeviceGetMigMode(void *d, unsigned *now, unsigned *pending) {
    (void)d;
#ifdef MIG_ON
    *now = 1;
#else
    *now = 0;
#endif
    *pending = 1;
    return OK;
}

static int profile(unsigned number, struct profile *info) {
    switch (number) {
    case 0:
        *info = (struct profile){19, 1, 1, 7, 14, 1, 0, 0, 0, 0, 4864};
        return OK;
    case 7:
        *info = (struct profile){20, 1, 1, 1, 14, 1, 1, 0, 1, 1, 4864};
        return OK;
    default:
        return number < 17 ? NOT_SUPPORTED : INVALID_ARGUMENT;
    }
}

int nvmlDeviceGetGpuInstanceProfileInfo(void *d, unsigned number, struct profile *info) {
    (void)d;
    return profile(number, info);
}

#ifdef VERSIONED
int nvmlDeviceGetGpuInstanceProfileInfoV(void *d, unsigned number, struct profile_v2 *info) {
    struct profile p;
    int code = profile(number, &p);
    (void)d;
    if (info->version != (sizeof(*info) | 2u << 24))
        return VERSION_MISMATCH;
    if (code == OK)
        *info = (struct profile_v2){info->version, p.id,     p.p2p,  p.slices, p.instances, 100,
                                    p.copy,        p.decode, p.encode, p.jpeg,   p.ofa,
                                    p.memory_mb,   {0}};
    return code;
}
#endif

int nvmlDeviceGetGpuInstancePossiblePlacements_v2(void *d, unsigned id, struct placement *at,
                                                  unsigned *count) {
    (void)d;
    if (id != 19)
        return NOT_SUPPORTED;
    at[0] = (struct placement){4, 1};
    at[1] = (struct placement){0, 1};
    *count = 2;
    return OK;
}

#ifdef IDLE
int nvmlDeviceGetComputeRunningProcesses_v2(void *d, unsigned *count, void *found) {
    (void)d, (void)found;
    *count = 0;
    return OK;
}
#endif

#ifdef PROCESSES
enum { INSUFFICIENT_SIZE = 7, COMPUTING = 40 };
struct process {
    unsigned pid;
    unsigned long long used;
    unsigned gpu_instance, compute_instance;
};
int nvmlDeviceGetComputeRunningProcesses_v3(void *d, unsigned *count, struct process *found) {
    (void)d;
    unsigned room = *count;
    *count = COMPUTING;
    if (room < COMPUTING)
        return INSUFFICIENT_SIZE;
    for (unsigned i = 0; i < COMPUTING; i++) {
        unsigned long long used = i == 0 ? ~0ull : i * 1000ull;
        found[i] = (struct process){1000 - i, used, ~0u, ~0u};
    }
    return OK;
}
int nvmlDeviceGetGraphicsRunningProcesses_v3(void *d, unsigned *count, struct process *found) {
    (void)d;
    *count = 2;
    found[0] = (struct process){999, 5000, ~0u, ~0u};
    found[1] = (struct process){7, 70, ~0u, ~0u};
    return OK;
}
int nvmlDeviceGetMPSComputeRunningProcesses_v3(void *d, unsigned *count, struct process *found) {
    (void)d, (void)count, (void)found;
    return NOT_SUPPORTED;
}
#endif
