/* Loads a plugin with RTLD_DEEPBIND or, with an argument, into a separate namespace. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

int main(int arguments, char **argument)
{
    if (arguments < 3)
        return 2;
    void *plugin = strcmp(argument[2], "apart") == 0 ? dlmopen(LM_ID_NEWLM, argument[1], RTLD_NOW)
                                                     : dlopen(argument[1], RTLD_NOW | RTLD_DEEPBIND);
    if (!plugin) {
        printf("none: %s\n", dlerror());
        return 1;
    }
    printf("plugin %d\n", ((int (*)(void))dlsym(plugin, "plugin"))());
    return 0;
}
