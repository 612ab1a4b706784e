/* Calls a function that is newer than the guard. */
#include <stdio.h>
#include "calls.h"

everywhere cuMemAllocEverywhere;
twice cuLaunchTwice;

int main(void)
{
    printf("everywhere %d\n", (int)cuMemAllocEverywhere(EVERYWHERE));
    printf("twice %d\n", cuLaunchTwice());
    return 0;
}
