// An NVML library with a few functions that the simulated one lacks. It knows one GPU, whose UUID is set at build
// time, the calling process, and two other processes.

#include <string.h>
#include <unistd.h>

struct detail { unsigned pid; unsigned long long bytes; unsigned instances[2]; unsigned long long protected_bytes; };
struct details { unsigned version, mode, count; struct detail *list; };
struct sample { unsigned pid; unsigned long long time; unsigned percents[4]; };
struct newer { unsigned long long time; unsigned pid, percents[6]; };
struct newers { unsigned version, count; unsigned long long since; struct newer *list; };
struct graphic { unsigned pid; unsigned long long bytes; unsigned instances[2]; };

int nvmlInit_v2(void) { return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) { *device = (void *)(16UL * (index + 1)); return 0; }
int nvmlDeviceGetUUID(void *device, char *text, unsigned room) {
    const char *uuid = (unsigned long)device == 16 ? UUID : "GPU-ffffffff-ffff-ffff-ffff-ffffffffffff";
    if (room < 41) return 7;
    strcpy(text, uuid);
    return 0;
}
int nvmlDeviceGetRunningProcessDetailList(void *device, struct details *list) {
    (void)device;
    if (list->version != ((1 << 24) | sizeof(struct details))) return 25;
    if (list->count < 3) { list->count = 3; return 7; }
    list->count = 3;
    for (unsigned i = 0; i < 3; i++) list->list[i] = (struct detail){i + 1, 1 << 30, {-1, -1}, 0};
    return 0;
}
int nvmlDeviceGetGraphicsRunningProcesses_v3(void *device, unsigned *count, struct graphic *list) {
    (void)device;
    if (*count < 1) { *count = 1; return 7; }
    *count = 1;
    list[0] = (struct graphic){1, 1 << 30, {-1, -1}};
    return 0;
}
int nvmlDeviceGetMPSComputeRunningProcesses_v3(void *device, unsigned *count, struct graphic *list) {
    return nvmlDeviceGetGraphicsRunningProcesses_v3(device, count, list) + (device == 0);
}
int nvmlDeviceGetProcessUtilization(void *device, struct sample *list, unsigned *count, unsigned long long since) {
    (void)device;
    if (!list) { *count = 3; return 7; }
    *count = 3;
    unsigned pids[3] = {1, (unsigned)getpid(), 2};
    for (unsigned i = 0; i < 3; i++) list[i] = (struct sample){pids[i], since + i, {10 * i, 0, 0, 0}};
    return 0;
}
int nvmlDeviceGetProcessesUtilizationInfo(void *device, struct newers *list) {
    (void)device;
    list->count = 3;
    unsigned pids[3] = {1, 2, (unsigned)getpid()};
    for (unsigned i = 0; i < 3; i++) list->list[i] = (struct newer){list->since + i, pids[i], {10 * i, 0, 0, 0, 0, 0}};
    return 0;
}
int nvmlDeviceGetAccountingPids(void *device, unsigned *count, unsigned *pids) {
    (void)device;
    pids[0] = (unsigned)getpid(); pids[1] = 1; pids[2] = 2;
    *count = 3;
    return 0;
}
int nvmlDeviceGetAccountingStats(void *device, unsigned pid, void *stats) { (void)device; (void)stats; return pid ? 0 : 2; }
int nvmlDeviceSetPowerManagementLimit(void *device, unsigned milliwatts) { (void)device; (void)milliwatts; return 0; }
int nvmlDeviceResetGpuLockedClocks(void *device) { return device == 0; }
int nvmlGpuInstanceDestroy(void *instance) { return instance == (void *)1; }
int nvmlDeviceRemoveGpu_v2(void *pci, int state, int link) { return (pci == (void *)1) + state + link; }
