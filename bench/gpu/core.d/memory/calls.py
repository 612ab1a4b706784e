"""E3: what the guard adds to calls, in one process of a share.

Each call is timed through the guard, and at the address that the driver's own file has for it. The driver's own is timed twice: the
difference is what the measurement cannot tell apart.
"""

import ctypes
import os
import statistics
from ctypes import c_size_t, c_uint, c_uint64, c_void_p

import elf
from driver import Cuda
from figures import check, raw, spread, turns
from loops import load

LAUNCHES = 500  # fewer than a driver queues before it blocks
REAL = r"^/run/octavo/real/libcuda\.so"
SIZE = 2 << 20


class Pointers:
    """Functions of the driver, through the guard and without it."""

    def __init__(self, cuda, *names):
        found = elf.mapped(REAL)
        assert found, "the driver's own library is not mapped: this is no share"
        path, base = found
        values = elf.functions(path)
        self.real = [c_void_p(base + values[name]) for name in names]
        self.guard = [ctypes.cast(getattr(cuda.library, name), c_void_p) for name in names]
        for name, real, guard in zip(names, self.real, self.guard):
            assert elf.file_at(real.value) == path, f"{name} is not where the file has it"
            assert elf.file_at(guard.value) != path, f"{name} does not lead through the guard"


def check_allocations(cuda, pointers):
    """Memory is charged through the guard, and not without it."""
    for functions, charged in ((pointers.guard, True), (pointers.real, False)):
        allocate, free = (ctypes.CFUNCTYPE(ctypes.c_int, *types)(function.value) for function, types in zip(
            functions, [(c_void_p, c_size_t), (c_uint64,)]))
        before, pointer = cuda.memory()[0], c_uint64()
        assert allocate(ctypes.byref(pointer), SIZE) == 0
        after = cuda.memory()[0]
        assert free(pointer) == 0
        assert (after < before) == charged, f"free memory went from {before} to {after}"


def compare(what, pointers, run, calls, goal=None, blocks=12, count=31):
    """`run` times some calls of given functions, and returns nanoseconds."""
    ways = {"real": pointers.real, "guard": pointers.guard, "again": pointers.real}
    found = {name: [] for name in ways}
    for functions in ways.values():
        run(functions)
    for turn in turns(list(ways), count):
        for name in turn:
            times = [run(ways[name]) for _ in range(blocks)]
            assert all(times), f"{what}: a call failed"
            found[name].append(statistics.median(times) / calls)
    spread(f"{what}: driver alone", found["real"], "ns")
    spread(f"{what}: against itself", [again - real for again, real in zip(found["again"], found["real"])], "ns")
    both = [(real + again) / 2 for real, again in zip(found["real"], found["again"])]
    spread(f"{what}: added by the guard", [guard - real for guard, real in zip(found["guard"], both)], "ns", goal)
    raw(call=what, nanoseconds=found)


def main():
    cuda, loops = Cuda(), load()
    cuda.check_map()
    # This thread alone: those of the guard and the driver stay free.
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    nothing = cuda.function("nothing")

    def launches(functions):
        time = loops.launches(functions[0], nothing, c_uint(LAUNCHES))
        cuda.synchronize()
        return time

    compare("cuLaunchKernel", Pointers(cuda, "cuLaunchKernel"), launches, LAUNCHES, 30)
    plain = Pointers(cuda, "cuMemAlloc_v2", "cuMemFree_v2")
    check_allocations(cuda, plain)
    compare("cuMemAlloc and cuMemFree", plain, lambda functions: loops.allocations(*functions, c_size_t(SIZE), 50), 50, blocks=3)
    pooled = Pointers(cuda, "cuMemAllocAsync", "cuMemFreeAsync")
    compare(
        "cuMemAllocAsync and cuMemFreeAsync", pooled, lambda functions: loops.async_allocations(*functions, c_size_t(SIZE), 100), 100,
        blocks=3)
    compare("cuMemGetInfo", Pointers(cuda, "cuMemGetInfo_v2"), lambda functions: loops.infos(functions[0], 100), 100, blocks=3)
    cuda.check_map()
    check("calls give the same results through the guard", 1, "", "1", True)


main()
