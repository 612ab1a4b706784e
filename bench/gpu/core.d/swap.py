"""E7: memory of a process moves to the host and back by the driver's checkpoints.

The program holds memory with known contents, and a graph that was captured before. After each move both are checked. The time of the moves
is compared with copies of pinned memory in the same run.
"""

import json
import os
import statistics
import subprocess
import sys
import time
from ctypes import byref, c_size_t, c_uint, c_uint64, c_void_p

from driver import IS_SIMULATED, Cuda, Refused
from figures import MIB, at_least, at_most, check, exactly, raw, spread, turns
from nvml import Nvml
from share import GIB, built, program

BLOCK = GIB
SAMPLE_EVERY = 16 * MIB
COUNT = 1 << 16


class Kept:
    """Memory with known contents: each block has a word of its own."""

    def __init__(self, cuda, size):
        self.cuda, self.blocks = cuda, []
        for number in range(size // BLOCK):
            pointer = cuda.allocate(BLOCK)
            cuda.call("cuMemsetD32_v2", pointer, c_uint(0x0C7A0000 + number), c_uint64(BLOCK // 4))
            self.blocks.append(pointer)
        cuda.synchronize()

    def wrong(self):
        """Samples that are not as they were written."""
        sample, wrong = (c_uint * 1024)(), 0
        for number, pointer in enumerate(self.blocks):
            for offset in range(0, BLOCK, SAMPLE_EVERY):
                self.cuda.to_host(sample, c_uint64(pointer.value + offset))
                wrong += any(word != 0x0C7A0000 + number for word in sample)
        return wrong


class Replay:
    """A graph of one kernel over an array, with its result."""

    def __init__(self, cuda):
        self.cuda, self.pointer = cuda, cuda.allocate(4 * COUNT)
        stream, graph, self.graph = c_void_p(), c_void_p(), c_void_p()
        cuda.call("cuStreamCreate", byref(stream), 1)
        cuda.function("map")  # code is not loaded in a capture
        cuda.call("cuStreamBeginCapture_v2", stream, 2)
        cuda.launch("map", self.pointer, c_uint(COUNT), grid=COUNT // 256, block=256, stream=stream)
        cuda.call("cuStreamEndCapture", stream, byref(graph))
        cuda.call("cuGraphInstantiateWithFlags", byref(self.graph), graph, c_uint64(0))
        self.stream = stream

    def is_right(self):
        values = (c_uint * COUNT)(*range(COUNT))
        self.cuda.to_device(self.pointer, values)
        self.cuda.call("cuGraphLaunch", self.graph, self.stream)
        self.cuda.call("cuStreamSynchronize", self.stream)
        self.cuda.to_host(values, self.pointer)
        return IS_SIMULATED or all(value == 3 * i + 1 for i, value in enumerate(values))


def tenant(size):
    """Answers each line with what is wrong."""
    cuda = Cuda()
    kept, replay = Kept(cuda, size), Replay(cuda)
    print(json.dumps({"wrong": kept.wrong(), "is_right": replay.is_right()}), flush=True)
    for _ in sys.stdin:
        print(json.dumps({"wrong": kept.wrong(), "is_right": replay.is_right()}), flush=True)


def pinned(cuda):
    """GiB per second of copies from and to pinned memory of the host."""
    size, host = GIB // 2, c_void_p()
    cuda.call("cuMemHostAlloc", byref(host), c_size_t(size), 0)
    pointer, found = cuda.allocate(size), {"cuMemcpyDtoH_v2": [], "cuMemcpyHtoD_v2": []}
    for turn in turns(list(found), 6):
        for name in turn:
            ends = (host, pointer) if name == "cuMemcpyDtoH_v2" else (pointer, host)
            begun = time.perf_counter()
            cuda.call(name, *ends, c_size_t(size))
            found[name].append(size / GIB / (time.perf_counter() - begun))
    cuda.free(pointer)
    cuda.call("cuMemFreeHost", host)
    return {"out": statistics.median(found["cuMemcpyDtoH_v2"]), "in": statistics.median(found["cuMemcpyHtoD_v2"])}


def move(direction, pid):
    """Milliseconds of each step."""
    command = [built("octavo"), "process-checkpoint", direction, "--pid", str(pid), "--timeout", "20s"]
    done = subprocess.run([*command, "--driver-root", os.environ["CORE_DRIVER_ROOT"]], capture_output=True, text=True, timeout=120)
    if done.returncode != 0:
        raise RuntimeError(f"{direction}: {done.stderr.strip()} (exit code {done.returncode})")
    return json.loads(done.stdout)["milliseconds"]


def swap(nvml, size, bandwidth):
    base = nvml.used()
    child = subprocess.Popen(program("swap.py", "tenant", size), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        first = json.loads(child.stdout.readline())
        exactly(f"{size // GIB} GiB: wrong samples before", first["wrong"], 0)
        rates = {"out": [], "in": []}
        for _ in range(2 if IS_SIMULATED else 5):
            before = nvml.used() - base
            times = move("out", child.pid)
            at_most(f"{size // GIB} GiB: left on the GPU", (nvml.used() - base) / MIB, 16, "MiB")
            raw(size=size, used=before, out=times)
            rates["out"].append(size / GIB / (times["checkpoint"] / 1000))
            times = move("in", child.pid)
            raw(size=size, back=times)
            rates["in"].append(size / GIB / (times["restore"] / 1000))
            child.stdin.write("check\n")
            child.stdin.flush()
            found = json.loads(child.stdout.readline())
            exactly(f"{size // GIB} GiB: wrong samples after", found["wrong"], 0)
            check(f"{size // GIB} GiB: a graph replays after it", found["is_right"], goal="true", met=found["is_right"])
        for direction, values in rates.items():
            spread(f"{size // GIB} GiB: {direction}", values, "GiB/s")
            if not IS_SIMULATED:
                part = 100 * statistics.median(values) / bandwidth[direction]
                at_least(f"{size // GIB} GiB: {direction}, of pinned copies", part, 70, "%")
    finally:
        child.kill()
        child.wait()


def main():
    nvml = Nvml()
    cuda = Cuda()
    bandwidth = pinned(cuda)
    for direction, rate in bandwidth.items():
        check(f"copies of pinned memory, {direction}", round(rate, 1), "GiB/s")
    free, _ = cuda.memory()
    cuda.call("cuDevicePrimaryCtxRelease_v2", 0)
    for size in (1, 8, 32):
        if size * GIB < free - 4 * GIB and (size == 1 or not IS_SIMULATED):
            swap(nvml, size * GIB, bandwidth)


if __name__ == "__main__":
    if sys.argv[1:2] == ["tenant"]:
        tenant(int(sys.argv[2]))
    else:
        try:
            main()
        except Refused as refused:
            check(f"E7 cannot run: {refused}", None)
