"""E0: what a context takes of the GPU, by the driver's count, and whether the guard counts it.

Processes go step by step, all at the same time. The steps are the driver's start, its primary context, a loaded module, and then
PyTorch's first kernel and its first product, which loads cuBLAS.
"""

import importlib.util
import json
import subprocess
import sys

from figures import MIB, at_least, check, raw
from nvml import Nvml
from share import CONTEXT_CHARGE, GIB, command, program


def child(kind):
    if kind == "driver":
        import ctypes

        from driver import Cuda

        ctypes.CDLL("libcuda.so.1").cuInit(0)
        step("cuInit")
        cuda = Cuda()
        step("primary context", charged=used(*cuda.memory()))
        cuda.function("nothing")
        step("module")
    else:
        import torch

        torch.cuda.init()
        one = torch.ones(64, 64, device="cuda")
        torch.cuda.synchronize()
        step("first kernel", charged=used(*torch.cuda.mem_get_info()))
        one @ one
        torch.cuda.synchronize()
        step("first product")


def used(free, total):
    return total - free


def step(name, **values):
    print(json.dumps({"step": name, **values}), flush=True)
    sys.stdin.readline()


def measure(nvml, prefix, kind, count):
    """Growth of the GPU's use with each step of so many processes, and what the first one sees charged."""
    before = nvml.used()
    run = prefix + program("memory/contexts.py", "child", kind)
    children = [subprocess.Popen(run, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(count)]
    rows = []
    while True:
        lines = [child.stdout.readline() for child in children]
        if not all(lines):
            break
        rows.append({**json.loads(lines[0]), "used": nvml.used() - before})
        for child in children:
            child.stdin.write("\n")
            child.stdin.flush()
    for child in children:
        child.wait()
        assert child.returncode == 0, f"a process of {kind} ended with {child.returncode}"
    return rows


def main():
    nvml = Nvml()
    for kind in ["driver", "torch"] if importlib.util.find_spec("torch") else ["driver"]:
        for count in (1, 2, 8) if kind == "driver" else (1, 4):
            rows = measure(nvml, [], kind, count)
            for row in rows:
                check(f"{kind}: {row['step']}, for each of {count}", round(row["used"] / count / MIB), "MiB")
            raw(kind=kind, processes=count, rows=rows)
        for row in measure(nvml, command("e0", 8 * GIB), kind, 1):
            if "charged" in row:
                charged, taken = row["charged"], row["used"]
                at_least(f"{kind} in a share: charged after the {row['step']}", charged / MIB, CONTEXT_CHARGE / MIB, "MiB")
                check(f"{kind} in a share: the driver's count beyond that", (taken - charged) // MIB, "MiB")


if __name__ == "__main__":
    child(sys.argv[2]) if sys.argv[1:2] == ["child"] else main()
