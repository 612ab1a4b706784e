"""E16: `octavo probe verify`, the test of a GPU after a repair, on a GPU that works."""

import json
import subprocess

from driver import IS_SIMULATED
from figures import at_least, check, exactly, raw
from share import built

SECONDS = 5 if IS_SIMULATED else 20


def numbers(found):
    """The numbers of a check that are worth a line."""
    if found["check"] == "memory":
        # The simulated driver computes kernels on the host's processor, so it reaches little.
        share = 100 * found["coveredBytes"] / found["bytes"]
        at_least("memory: reached by each pattern", share, 0 if IS_SIMULATED else 100, "%")
        check("memory: patterns", found["patterns"])
        check("memory: written", round(found["writeRate"] / 1e9, 1), "GB/s")
        check("memory: read", round(found["readRate"] / 1e9, 1), "GB/s")
    if found["check"] == "compute":
        exactly("compute: multiprocessors that have computed", found["usedMultiprocessors"], found["multiprocessors"])
        check("compute: products", found["products"])
        check("compute: operations", round(found["operationRate"] / 1e9, 1), "Gop/s")


def main():
    run = [built("octavo"), "probe", "verify", "--gpus", "0", "--seconds", str(SECONDS), "-o", "json"]
    ended = subprocess.run(run, stdout=subprocess.PIPE, text=True)
    found = json.loads(ended.stdout)
    raw(document=found)
    exactly("the test's exit code", ended.returncode, 0)
    exactly("the test's verdict", found["verdict"], "passed")
    check("the test took", found["seconds"], "s")
    for gpu in found["gpus"]:
        for one in gpu["checks"]:
            # One GPU has no peers to copy to.
            exactly(one["check"], one["verdict"], "notTried" if one["check"] == "peers" else "passed")
            if "message" in one:
                check(f"{one['check']}: {one['message']}", one["verdict"])
            numbers(one)


main()
