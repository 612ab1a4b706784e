/* Prints the mappings of the proxy. */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

int main(void)
{
    char line[512];
    if (!dlopen("libcuda.so.1", RTLD_NOW))
        return 1;
    FILE *maps = fopen("/proc/self/maps", "r");
    while (maps && fgets(line, sizeof line, maps)) {
        if (strstr(line, "/proxy/libcuda.so.1\n"))
            printf("%.4s\n", strchr(line, ' ') + 1);
    }
    return 0;
}
