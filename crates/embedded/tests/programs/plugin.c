// A library with the driver as its dependency.
#include <stddef.h>
#include <stdint.h>
extern int cuMemAlloc_v2(uint64_t *, size_t);
int plugin_allocate(size_t bytes) { uint64_t pointer; return cuMemAlloc_v2(&pointer, bytes); }
