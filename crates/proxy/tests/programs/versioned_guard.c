/* A guard of a driver whose names have versions. */
int octavo_hook_nvmlInit_v2(void) { return 101; }
int octavo_hook_nvmlMemory(void) { return 104; }
