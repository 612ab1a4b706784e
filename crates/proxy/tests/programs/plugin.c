/* A plugin that is linked to the driver. */
#include "calls.h"

init cuInit;
count cuDeviceGetCount;

int plugin(void) { return cuInit(3) * 1000 + cuDeviceGetCount(); }
