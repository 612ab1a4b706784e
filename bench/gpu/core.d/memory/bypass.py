"""E2: ways to get memory that a library in front of the driver may not see, each tried in a share.

The growth of the GPU's use, as the driver counts it, is what a way got: no figure of the guard's own. Ways that no hook can see are
reported without a goal. An agent's watch is against them; it has none here, and E13 has one.
"""

import json
import subprocess

from driver import OUT_OF_MEMORY
from figures import MIB, at_most, check, exactly, raw
from nvml import Nvml
from share import GIB, command, program

LIMIT = 4 * GIB
BEYOND = LIMIT + GIB
TOLERANCE = 64 * MIB
# Each way, and whether the guard must hold it.
WAYS = {
    "deepbind": True, "sizes": True, "stack": True, "exported": True, "imported": True,
    "inherited": False, "ipc": False, "globals": False, "copy": False, "copy-managed": False, "pageable": False,
}


def attempt(nvml, way):
    """Most bytes by which the GPU's use grew during a way, and the way's own answer."""
    run = command("e2-ways", LIMIT) + program("memory/ways.py", way, BEYOND)
    run = subprocess.Popen(run, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    before, most, answer = None, 0, {}
    for line in run.stdout:
        if not line.startswith("{"):
            continue
        used = nvml.used()
        before = used if before is None else before
        most = max(most, used - before)
        answer |= json.loads(line)
        run.stdin.write("\n")
        run.stdin.flush()
    return most, answer | {"exit": run.wait()}


def main():
    nvml = Nvml()
    for way, must_hold in WAYS.items():
        if nvml.memory().free < BEYOND + 2 * GIB:
            check(f"{way}: too little memory of the GPU is free to try it", 0)
            continue
        most, answer = attempt(nvml, way)
        raw(way=way, most=most, **answer)
        if "lacking" in answer:
            check(f"{way}: not tried, {answer['lacking']}", 0)
            continue
        if "granted" not in answer:
            exactly(f"{way}: ended without a result, with", answer["exit"], 0)
            continue
        granted, code = answer["granted"], answer["code"]
        what = f"{way}: {answer['what']}: granted {granted // MIB}, code {code}, driver's growth"
        # A way that is refused altogether proves nothing.
        if must_hold and (granted or code == OUT_OF_MEMORY):
            at_most(what, most // MIB, (LIMIT + TOLERANCE) // MIB, "MiB")
        else:
            check(what, most // MIB, "MiB")
        if "left" in answer:
            check(f"{way}: still charged after it was given back", answer["left"] // MIB, "MiB")


main()
