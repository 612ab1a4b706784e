/* A driver with versioned names, one of them with two versions. */
int nvmlInit_v2(void) { return 1; }
int nvmlDeviceGetCount_v2(void) { return 2; }
int nvmlMemory_old(void) { return 3; }
int nvmlMemory(void) { return 4; }
__asm__(".symver nvmlMemory_old, nvmlMemory@OLD_1");
