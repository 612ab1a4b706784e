/* Calls functions that are newer than the guard. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include "calls.h"

int main(void)
{
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (!driver) {
        printf("none: %s\n", dlerror());
        return 1;
    }
    printf("everywhere %ld\n", ((everywhere *)dlsym(driver, "cuMemAllocEverywhere"))(EVERYWHERE));
    printf("various %g\n", ((various *)dlsym(driver, "cuLaunchVarious"))(4, 1.5, 2.5, 3.5, 4.5));
    struct large one = {{1, 2, 3, 4, 5, 6, 7, 8}};
    struct large three = ((large *)dlsym(driver, "cuMemAllocLarge"))(one, 3);
    printf("large %ld %ld\n", three.words[0], three.words[7]);
    twice *again = (twice *)dlsym(driver, "cuLaunchTwice");
    again();
    printf("twice %d\n", again());
    count *told = (count *)dlsym(driver, "guard_told");
    printf("told %d\n", told ? told() : 0);
    return 0;
}
