/* A guard for a driver with versioned names. */
int octavo_hook_nvmlInit_v2(void) { return 101; }
int octavo_hook_nvmlMemory(void) { return 104; }
