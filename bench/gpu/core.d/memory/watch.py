"""E1: frameworks at the limits of their shares, all at the same time, as on a shared GPU.

    watch.py NAME...

Runs frameworks.py for each name in its own share, and judges by the driver's count of its processes.
"""

import json
import subprocess
import sys
import threading

from figures import MIB, at_least, at_most, check, exactly, raw
from nvml import Nvml, Sampling, below
from share import CONTEXT_CHARGE, GIB, command, program

LIMIT = 8 * GIB
TOLERANCE = 64  # MiB
SETTLE_SECONDS = 1


class Framework:
    def __init__(self, nvml, name):
        self.nvml, self.name, self.context, self.most, self.result = nvml, name, None, 0, None
        run = command(f"e1-{name}", LIMIT) + program("memory/frameworks.py", name, LIMIT, SETTLE_SECONDS)
        self.process = subprocess.Popen(run, stdout=subprocess.PIPE, text=True)
        self.reader = threading.Thread(target=self.read)
        self.reader.start()

    def read(self):
        for line in self.process.stdout:
            if line.startswith("{"):
                found = json.loads(line)
                if found.get("step") == "context":
                    self.context = self.count(self.nvml.processes())
                else:
                    self.result = found
        self.process.wait()

    def count(self, processes):
        """The driver's count of its processes; None if the driver reports none."""
        tree = below([self.process.pid])
        mine = [used for pid, used in (processes or {}).items() if pid in tree]
        return None if not mine or None in mine else sum(mine)

    def report(self):
        if self.result is None:
            return exactly(f"{self.name}: ended without a result", self.process.returncode, 0)
        problems = self.result["problems"]
        exactly("; ".join([f"{self.name}: refused as {self.result['error']}", *problems]), len(problems), 0, "problems")
        check(f"{self.name}: granted", self.result["granted"] // MIB, "MiB")
        if self.context is None:
            return check(f"{self.name}: the driver does not report its processes", 0)
        beyond = self.most - LIMIT - max(0, self.context - CONTEXT_CHARGE)
        at_most(f"{self.name}: the driver's count beyond limit and context", beyond / MIB, TOLERANCE, "MiB")
        check(f"{self.name}: context", self.context // MIB, "MiB")


def main():
    nvml = Nvml()
    least_free = [nvml.memory().free]
    frameworks = [Framework(nvml, name) for name in sys.argv[1:]]

    def look():
        processes = nvml.processes()
        least_free[0] = min(least_free[0], nvml.memory().free)
        for framework in frameworks:
            framework.most = max(framework.most, framework.count(processes) or 0)

    with Sampling(look, 0.05) as sampling:
        for framework in frameworks:
            framework.reader.join()
    for framework in frameworks:
        framework.report()
    # Otherwise a refusal may be the GPU's, and not the share's.
    at_least(f"free memory of the GPU at the least, {sampling.samples} samples", least_free[0] / MIB, 1024, "MiB")
    raw(frameworks=[{"name": one.name, "most": one.most, "context": one.context, "result": one.result} for one in frameworks])


main()
