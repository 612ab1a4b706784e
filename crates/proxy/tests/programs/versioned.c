/* Uses versions of names, linked and looked up. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>

typedef int function(void);
function nvmlInit_v2, nvmlDeviceGetCount_v2, nvmlMemory, nvmlMemoryOld;
__asm__(".symver nvmlMemoryOld, nvmlMemory@OLD_1");

static void look(void *driver, const char *name, const char *version)
{
    function *found = (function *)dlvsym(driver, name, version);
    if (found)
        printf("%s %d\n", version, found());
    else
        printf("%s none\n", version);
}

int main(void)
{
    printf("linked %d %d %d %d\n", nvmlInit_v2(), nvmlDeviceGetCount_v2(), nvmlMemory(), nvmlMemoryOld());
    void *driver = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    look(driver, "nvmlInit_v2", "libnvidia-ml.so.1");
    look(driver, "nvmlMemory", "OLD_1");
    look(driver, "nvmlDeviceGetCount_v2", "libnvidia-ml.so.1");
    look(driver, "nvmlInit_v2", "OLD_1");
    printf("plain %d\n", ((function *)dlsym(driver, "nvmlMemory"))());
    return 0;
}
