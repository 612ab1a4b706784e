"""E10: a neighbour on the same GPU goes on while programs of another share fail.

The neighbour runs kernels without a pause, and compares their results. Each fault is a program of its own. Kernels that would not end
end by themselves after three seconds. Nothing is reset.
"""

import json
import os
import select
import signal
import subprocess
import sys
import time
from ctypes import c_uint, c_uint64

from driver import IS_SIMULATED, Cuda, Refused
from figures import MIB, at_least, at_most, check, exactly, raw
from nvml import Nvml
from share import GIB, command, program

SPIN_NS = 3_000_000_000
SETTLE_SECONDS = 0.3
# The code that the failing program itself gets.
FAULTS = {
    "nothing": 0, "illegal address": 700, "assert": 710, "trap": None, "endless kernel": 0, "out of memory": 2,
    "kill -9 while a kernel runs": None, "kill -9 with memory": None, "nothing again": 0,
}


def neighbour():
    """Answers each line with what happened since the last one."""
    cuda = Cuda()
    count = 1 << 16
    values, pointer = (c_uint * count)(*range(count)), cuda.allocate(4 * count)
    held = cuda.allocate(256 * MIB)
    cuda.call("cuMemsetD32_v2", held, 0x0C7A0C7A, c_uint64(64 * MIB))
    sample = (c_uint * 1024)()
    print("ready", flush=True)
    steps, worst, wrong, code = 0, 0.0, 0, 0
    while True:
        begun = time.monotonic()
        try:
            cuda.to_device(pointer, values)
            cuda.launch("map", pointer, c_uint(count), grid=count // 256, block=256)
            cuda.synchronize()
            found = (c_uint * count)()
            cuda.to_host(found, pointer)
            cuda.to_host(sample, c_uint64(held.value + steps % 1000 * 4096))
        except Refused as refused:
            code = refused.code
        worst, steps = max(worst, time.monotonic() - begun), steps + 1
        if not IS_SIMULATED:
            at = steps * 977 % count
            wrong += found[at] != (3 * at + 1) or sample[steps % 1024] != 0x0C7A0C7A
        if select.select([sys.stdin], [], [], 0)[0]:
            if not sys.stdin.readline():
                return
            print(json.dumps({"steps": steps, "worst_ms": worst * 1000, "wrong": wrong, "code": code}), flush=True)
            steps, worst, wrong = 0, 0.0, 0


def tenant(fault):
    """Prints the code of the failed call. A program that is to be killed waits for that."""
    cuda = Cuda()
    cuda.check_map()
    try:
        if fault == "illegal address":
            cuda.launch("poke", c_uint64(0x10))
        elif fault in ("assert", "trap"):
            cuda.launch(fault)
        elif fault == "endless kernel":
            cuda.launch("spin", c_uint64(SPIN_NS), grid=64, block=128)
        elif fault == "out of memory":
            while True:
                cuda.allocate(64 * MIB)
        elif fault.startswith("kill"):
            if fault.endswith("memory"):
                cuda.call("cuMemsetD8_v2", cuda.allocate(1 << 30), 1, c_uint64(1 << 30))
                cuda.synchronize()
            else:
                cuda.launch("spin", c_uint64(SPIN_NS), grid=64, block=128)
            print("kill", os.getpid(), flush=True)
            time.sleep(60)
        cuda.synchronize()
        code = 0
    except Refused as refused:
        code = refused.code
    print(code, flush=True)
    # The driver's end of a broken context may abort.
    os._exit(0)


def fail(fault):
    """Runs a program with a fault. Returns its code; None if it was killed."""
    run = subprocess.Popen(command("e10-tenant", 8 * GIB) + program("faults.py", "tenant", fault), stdout=subprocess.PIPE, text=True)
    code = None
    for line in run.stdout:
        words = line.split()
        if words[:1] == ["kill"]:
            time.sleep(0.2)
            os.kill(int(words[1]), signal.SIGKILL)
        elif words and words[0].isdigit():
            code = int(words[0])
    run.wait()
    return code


def main():
    nvml = Nvml()
    run = command("e10-neighbour", 8 * GIB) + program("faults.py", "neighbour")
    process = subprocess.Popen(run, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "ready\n", "the neighbour did not start"

    def since():
        print("report", file=process.stdin, flush=True)
        return json.loads(process.stdout.readline())

    since()
    time.sleep(SETTLE_SECONDS)
    alone, before = since(), nvml.used()
    alone_rate = alone["steps"] / SETTLE_SECONDS
    check("the neighbour alone: steps in a second", round(alone_rate))
    check("the neighbour alone: longest step", round(alone["worst_ms"], 1), "ms")
    for fault, expected in FAULTS.items():
        begun = time.monotonic()
        code = fail(fault)
        time.sleep(SETTLE_SECONDS)
        seen, seconds = since(), time.monotonic() - begun
        raw(fault=fault, its_code=code, seconds=seconds, **seen)
        what = f"{fault}: the program's code"
        exactly(what, code, expected) if expected is not None and not IS_SIMULATED else check(what, code)
        exactly(f"{fault}: the neighbour's wrong results and failed calls", seen["wrong"] + (seen["code"] != 0), 0)
        at_least(f"{fault}: the neighbour's steps, of those alone", 100 * seen["steps"] / seconds / alone_rate, 10, "%")
        check(f"{fault}: the neighbour's longest step", round(seen["worst_ms"], 1), "ms")
    at_most("memory of ended programs that the driver still counts", (nvml.used() - before) / MIB, 64, "MiB")
    process.stdin.close()
    exactly("the neighbour ended with", process.wait(), 0)


if __name__ == "__main__":
    {"": main, "neighbour": neighbour, "tenant": tenant}["".join(sys.argv[1:2])](*sys.argv[2:])
