"""E14: is plain memory of any size charged for at least what the driver takes for it?

    sizes.py COMMAND...

COMMAND runs `sizes.py child` in a share. It allocates memory of each size, then frees all but each 32nd, then those. At each of these
steps this process reads the driver's own count, and the child what the guard charges. Nothing else may use the GPU. Prints a line of
JSON for each size.
"""

import ctypes
import json
import subprocess
import sys

SIZES = [1, 512, 4096, 65536, 1 << 19, (1 << 20) - 1, 1 << 20, (1 << 20) + 1, 1_153_434, 2 << 20, (2 << 20) + 1, 3 << 20, 5_000_000]
TOTAL = 256 << 20
MOST = 4096
SLAB = 2 << 20


def child():
    cuda = ctypes.CDLL("libcuda.so.1")

    def call(name, *arguments):
        code = getattr(cuda, name)(*arguments)
        assert code == 0, f"{name}: {code}"

    def left():
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
        return free.value

    def step(**values):
        print(json.dumps({"left": left(), **values}), flush=True)
        sys.stdin.readline()

    context = ctypes.c_void_p()
    call("cuInit", 0)
    call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
    call("cuCtxSetCurrent", context)
    for size in SIZES:
        step(step="before", size=size)
        addresses = []
        for _ in range(min(MOST, TOTAL // size)):
            address = ctypes.c_uint64()
            call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(size))
            addresses.append(address.value)
        step(step="all", size=size, count=len(addresses), slabs=len({address // SLAB for address in addresses}))
        for number, address in enumerate(addresses):
            if number % 32:
                call("cuMemFree_v2", ctypes.c_uint64(address))
        step(step="some", size=size)
        for address in addresses[::32]:
            call("cuMemFree_v2", ctypes.c_uint64(address))
        step(step="none", size=size)


def main(command):
    from nvml import Nvml

    nvml = Nvml()
    run = subprocess.Popen(
        command + [sys.executable, __file__, "child"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    row = {}
    for line in run.stdout:
        found = json.loads(line)
        used = nvml.used()
        step = found.pop("step")
        if step == "before":
            row = {"size": found["size"]}
            before = (found["left"], used)
        else:
            charged, taken = before[0] - found["left"], used - before[1]
            row[step] = {"charged": charged, "taken": taken}
        if step == "all":
            row |= {"count": found["count"], "slabs": found["slabs"]}
        if step == "none":
            print(json.dumps(row), flush=True)
        run.stdin.write("\n")
        run.stdin.flush()
    sys.exit(run.wait())


if sys.argv[1] == "child":
    child()
else:
    main(sys.argv[1:])
