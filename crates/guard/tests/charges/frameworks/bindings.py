"""CUDA's own Python bindings in a share: the driver's API and the runtime's."""

import sys

from cuda.bindings import driver, runtime

MIB = 1 << 20
limit = int(sys.argv[1])


def checked(result):
    """The values of a call that must succeed."""
    code, *values = result
    assert int(code) == 0, (code, values)
    return values[0] if len(values) == 1 else values


checked(driver.cuInit(0))
device = checked(driver.cuDeviceGet(0))
assert checked(driver.cuDeviceTotalMem(device)) == limit
context = checked(driver.cuDevicePrimaryCtxRetain(device))
checked(driver.cuCtxSetCurrent(context))
free, total = checked(driver.cuMemGetInfo())
assert total == limit and free < limit


def fill(allocate):
    """Addresses until the share is full, and the code of the refusal."""
    held = []
    while True:
        code, *address = allocate()
        if int(code) != 0:
            return held, code
        held.append(address[0])


held, code = fill(lambda: driver.cuMemAlloc(64 * MIB))
assert code == driver.CUresult.CUDA_ERROR_OUT_OF_MEMORY, code
assert len(held) == free // (64 * MIB), (len(held), free)
for address in held:
    checked(driver.cuMemFree(address))

held, code = fill(lambda: runtime.cudaMalloc(64 * MIB))
assert code == runtime.cudaError_t.cudaErrorMemoryAllocation, code
assert len(held) == free // (64 * MIB), (len(held), free)
for address in held:
    checked(runtime.cudaFree(address))

stream = checked(runtime.cudaStreamCreate())
held, code = fill(lambda: runtime.cudaMallocAsync(64 * MIB, stream))
assert code == runtime.cudaError_t.cudaErrorMemoryAllocation, code
assert len(held) == free // (64 * MIB), (len(held), free)
for address in held:
    checked(runtime.cudaFreeAsync(address, stream))
checked(runtime.cudaStreamSynchronize(stream))

prop = driver.CUmemAllocationProp()
prop.type = driver.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
prop.location.type = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
prop.location.id = 0
held, code = fill(lambda: driver.cuMemCreate(64 * MIB, prop, 0))
assert code == driver.CUresult.CUDA_ERROR_OUT_OF_MEMORY, code
for handle in held:
    checked(driver.cuMemRelease(handle))
assert checked(driver.cuMemGetInfo())[0] == free
checked(driver.cuDevicePrimaryCtxRelease(device))
print("all checked")
