"""E14: is plain memory of any size charged for at least what the driver takes for it?

A program in a share allocates memory of each size, then frees all but each 32nd, then those. At each of these
steps this process reads the driver's own count, and the child what the guard charges. Nothing else may use the GPU.
"""

import json
import subprocess
import sys

from figures import MIB, at_most, raw
from share import GIB, command, program

SIZES = [1, 512, 4096, 65536, 1 << 19, (1 << 20) - 1, 1 << 20, (1 << 20) + 1, 1_153_434, 2 << 20, (2 << 20) + 1, 3 << 20, 5_000_000]
TOTAL = 256 << 20
MOST = 4096
SLAB = 2 << 20


def child():
    from driver import Cuda

    cuda = Cuda()

    def step(**values):
        print(json.dumps({"left": cuda.memory()[0], **values}), flush=True)
        sys.stdin.readline()

    for size in SIZES:
        step(step="before", size=size)
        pointers = [cuda.allocate(size) for _ in range(min(MOST, TOTAL // size))]
        step(step="all", count=len(pointers), slabs=len({pointer.value // SLAB for pointer in pointers}))
        for number, pointer in enumerate(pointers):
            if number % 32:
                cuda.free(pointer)
        step(step="some")
        for pointer in pointers[::32]:
            cuda.free(pointer)
        step(step="none")


def report(row):
    raw(**row)
    beyond = [(row[step]["taken"] - row[step]["charged"]) / MIB for step in ("all", "some", "none")]
    what = f"{row['count']} of {row['size']} B in {row['slabs']} granules, all, some and none of them there"
    at_most(f"{what}: taken more than charged", max(beyond), 0, "MiB")
    at_most(f"{row['size']} B: charged more than taken", 0 - min(beyond), 2, "MiB")


def main():
    from nvml import Nvml

    nvml = Nvml()
    run = command("e14", 10 * GIB) + program("memory/sizes.py", "child")
    run = subprocess.Popen(run, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
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
            report(row)
        run.stdin.write("\n")
        run.stdin.flush()
    sys.exit(run.wait())


child() if sys.argv[1:] == ["child"] else main()
