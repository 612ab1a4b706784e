"""Figures of programs that print a JSON document of their own.

    foreign.py probe|namespace             E2: the paths of `octavo probe` in a share
    foreign.py real-share FRAMEWORK...     E13: a share of the agent, in which these frameworks run
    foreign.py bypasses WAY...             E15: such a share, in which these ways of ways.py lead past the guard
"""

import json
import os
import shlex
import subprocess
import sys

from figures import MIB, at_most, check, raw
from nvml import Nvml, Sampling
from share import GIB, built, command, program

HOLD_SECONDS = 3
LIMIT = 10 * GIB
CONTEXT = 512 * MIB  # at most, beyond its charge


def document(run):
    """What the program prints. A missed goal is in it, and in its exit code."""
    ended = subprocess.run(run, stdout=subprocess.PIPE, text=True)
    if not ended.stdout:
        sys.exit(f"{run[0]} ended with {ended.returncode}, without a document")
    found = json.loads(ended.stdout)
    raw(document=found)
    return found


def probe(*only):
    nvml = Nvml()
    before, most = nvml.used(), [0]

    def look():
        most[0] = max(most[0], nvml.used() - before)

    with Sampling(look):
        found = document(command("e2", LIMIT) + [built("octavo"), "probe", "--no-timing", *only, "-o", "json"])
    at_most("the driver's count while the probe ran", most[0] / MIB, (LIMIT + CONTEXT) / MIB, "MiB")
    for gpu in found["gpus"]:
        check("the probe sees a share", gpu["isShare"], "", "True", gpu["isShare"])
        for finding in gpu["findings"]:
            verdict = finding["verdict"]
            check(f"path {finding['path']}", verdict, "", "holds", verdict in ("holds", "unsupported"))


def real_share(*flags):
    run = [built("octavo-bench"), "real-share", "--octavo", built("octavo"), "--format", "json"]
    run += ["--driver-root", os.environ["CORE_DRIVER_ROOT"], "--sys-root", os.environ["CORE_SYS_ROOT"]]
    if "CORE_SIMULATOR" in os.environ:
        run += ["--simulator", os.environ["CORE_SIMULATOR"]]
    for figure in document([*run, *flags])["figures"]:
        check(figure["what"], round(figure["median"], 3), figure["unit"], figure["goal"] or "", figure["met"])


def with_frameworks(*names):
    real_share(*(f"--run={name}={shlex.join(program('memory/frameworks.py', name))} {{limit}} 2" for name in names))


def bypasses(*names):
    hold = "env", f"HOLD={HOLD_SECONDS}"
    real_share(*(f"--bypass={name}={shlex.join([*hold, *program('memory/ways.py', name, 12 * GIB)])}" for name in names))


KINDS = {"probe": probe, "namespace": lambda: probe("--path", "namespace"), "real-share": with_frameworks, "bypasses": bypasses}
KINDS[sys.argv[1]](*sys.argv[2:])
