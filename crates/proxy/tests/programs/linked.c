/* Calls all functions that it is linked to. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include "calls.h"

init cuInit;
alloc cuMemAlloc_v2;
count cuDeviceGetCount;
twice cuLaunchTwice;
#ifdef WITH_DATA
extern int cuDriverVersion;
#endif

int main(void)
{
    unsigned long place = 0;
    printf("init %d\n", cuInit(3));
    int code = cuMemAlloc_v2(&place, 77);
    printf("alloc %d %lu\n", code, place);
    printf("count %d\n", cuDeviceGetCount());
    printf("twice %d %d\n", cuLaunchTwice(), cuLaunchTwice());
    init *found = (init *)dlsym(RTLD_DEFAULT, "cuInit");
    printf("default %d %s\n", found(4), found == cuInit ? "same" : "other");
    printf("default %d\n", ((count *)dlsym(RTLD_DEFAULT, "cuDeviceGetCount"))());
#ifdef WITH_DATA
    printf("version %d\n", cuDriverVersion);
#endif
    return 0;
}
