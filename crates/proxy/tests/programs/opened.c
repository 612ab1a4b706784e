/* Looks functions up by handle: in this namespace or, with an argument, in a separate one. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include "calls.h"

int main(int arguments, char **argument)
{
    int is_apart = arguments > 1 && strcmp(argument[1], "apart") == 0;
#ifdef LM_ID_NEWLM
    void *driver = is_apart ? dlmopen(LM_ID_NEWLM, "libcuda.so.1", RTLD_NOW) : dlopen("libcuda.so.1", RTLD_LAZY);
#else
    void *driver = dlopen("libcuda.so.1", RTLD_LAZY);
#endif
    if (!driver) {
        printf("none: %s\n", dlerror());
        return 1;
    }
    unsigned long place = 0;
    printf("init %d\n", ((init *)dlsym(driver, "cuInit"))(3));
    int code = ((alloc *)dlsym(driver, "cuMemAlloc_v2"))(&place, 77);
    printf("alloc %d %lu\n", code, place);
    printf("count %d\n", ((count *)dlsym(driver, "cuDeviceGetCount"))());
    printf("version %d\n", *(int *)dlsym(driver, "cuDriverVersion"));
    printf("missing %s\n", dlsym(driver, "cuNotThereYet") ? "found" : "none");
    printf("nonsense %s\n", dlsym(driver, "cuNonsense") ? "found" : "none");
    dlclose(driver);
    void *again = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    printf("closed %s\n", is_apart || again == driver ? "stays" : "gone");
    return 0;
}
