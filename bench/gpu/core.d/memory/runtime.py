"""E1: a program with CUDA's runtime library linked into it, in a share.

It is crates/guard/tests/charges/runtime.c. No library of the runtime is loaded, so only the driver's functions
can be hooked. The program stops at each step, where the driver's own count is read.
"""

import os
import subprocess

from figures import MIB, at_least, at_most, check, exactly
from nvml import Nvml
from share import CONTEXT_CHARGE, GIB, built, command

BLOCK = 64 * MIB
LIMIT = 4 * GIB
NAME = "static runtime"


def main():
    if not os.path.exists(built("runtime")):
        return check(f"{NAME}: it was not built", 0)
    nvml = Nvml()
    before, values, used = nvml.used(), {}, {}
    program = subprocess.Popen([*command("e1-runtime", LIMIT), built("runtime")], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    for line in program.stdout:
        name, value = line.split()
        values[name], used[name] = int(value), nvml.used() - before
        program.stdin.write("\n")
        program.stdin.flush()
    exactly(f"{NAME}: ended after {len(values)} steps, with", program.wait(), 0)
    check(f"{NAME}: its version", values["version"])
    exactly(f"{NAME}: total memory", values["total"] / MIB, LIMIT / MIB, "MiB")
    at_least(f"{NAME}: charged for the context", (LIMIT - values["free"]) / MIB, 256, "MiB")
    exactly(f"{NAME}: code of the refusal", values["refusal"], 2)
    exactly(f"{NAME}: code of the refusal from a pool", values["pooled-refusal"], 2)
    at_least(f"{NAME}: granted", values["blocks"] * BLOCK / MIB, LIMIT / 2 / MIB, "MiB")
    beyond = used["blocks"] - LIMIT - max(0, used["free"] - CONTEXT_CHARGE)
    at_most(f"{NAME}: the driver's count beyond limit and context", beyond / MIB, 64, "MiB")
    at_most(f"{NAME}: the driver's count after a reset", used["reset"] / MIB, 64, "MiB")


main()
