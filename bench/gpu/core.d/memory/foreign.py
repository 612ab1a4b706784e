"""Figures of programs that print a JSON document of their own.

    foreign.py probe|namespace             E2: the paths of `octavo probe` in a share
    foreign.py real-share FRAMEWORK...     E13: a share of the agent, in which these frameworks run
"""

import json
import os
import shlex
import subprocess
import sys

from figures import check, raw
from share import GIB, built, command, program


def document(run):
    """What the program prints. A missed goal is in it, and in its exit code."""
    ended = subprocess.run(run, stdout=subprocess.PIPE, text=True)
    if not ended.stdout:
        sys.exit(f"{run[0]} ended with {ended.returncode}, without a document")
    found = json.loads(ended.stdout)
    raw(document=found)
    return found


def probe(*only):
    found = document(command("e2", 10 * GIB) + [built("octavo"), "probe", "--no-timing", *only, "-o", "json"])
    for gpu in found["gpus"]:
        check("the probe sees a share", gpu["isShare"], "", "True", gpu["isShare"])
        for finding in gpu["findings"]:
            verdict = finding["verdict"]
            check(f"path {finding['path']}", verdict, "", "holds", verdict in ("holds", "unsupported"))


def real_share(*frameworks):
    run = [built("octavo-bench"), "real-share", "--octavo", built("octavo"), "--format", "json"]
    run += ["--driver-root", os.environ["CORE_DRIVER_ROOT"], "--sys-root", os.environ["CORE_SYS_ROOT"]]
    if "CORE_SIMULATOR" in os.environ:
        run += ["--simulator", os.environ["CORE_SIMULATOR"]]
    for name in frameworks:
        run += ["--run", f"{name}={shlex.join(program('memory/frameworks.py', name))} {{limit}} 2"]
    for figure in document(run)["figures"]:
        check(figure["what"], round(figure["median"], 3), figure["unit"], figure["goal"] or "", figure["met"])


{"probe": probe, "namespace": lambda: probe("--path", "namespace"), "real-share": real_share}[sys.argv[1]](*sys.argv[2:])
