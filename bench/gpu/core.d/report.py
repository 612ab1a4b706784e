"""Combines the results of the parts: a table on standard error, one JSON document on standard output.

    report.py RESULTS COMMIT [rehearsal]

Ends with 1 if a part did not come to its end or a goal was missed, and names it.
"""

import glob
import json
import os
import platform
import statistics
import subprocess
import sys

results, commit = sys.argv[1], sys.argv[2]
is_rehearsal = len(sys.argv) > 3 and bool(sys.argv[3])
MIB = 1 << 20
LIMIT = 10 << 30
CONTEXT = 256 * MIB
TOLERANCE = 64 * MIB
checks = []


def documents(name):
    """The JSON documents of a file, in order; none without the file."""
    try:
        with open(os.path.join(results, name)) as file:
            text = file.read()
    except OSError:
        return []
    found, decoder, at = [], json.JSONDecoder(), 0
    while True:
        while at < len(text) and text[at].isspace():
            at += 1
        if at == len(text):
            return found
        try:
            document, at = decoder.raw_decode(text, at)
        except ValueError:
            return found
        found.append(document)


def check(part, what, value, unit="", goal="", met=None):
    checks.append({"part": part, "check": what, "value": value, "unit": unit, "goal": goal, "met": met})


def at_most(part, what, value, most, unit):
    check(part, what, round(value, 3), unit, f"<= {most}", value <= most)


def zero(part, what, value, unit=""):
    check(part, what, value, unit, "0", value == 0)


def identity():
    for found in documents("E0.json"):
        check("E0", "functions that the driver exports", found["exports"])
        check("E0", "of them stood in for", found["hooks_exported"])
        broken = found["identity_broken_for_hooks"]
        zero("E0", "hooked names whose addresses differ" + (f": {' '.join(broken)}" if broken else ""), len(broken))
        check("E0", "allocation-like names without a hook", len(found["exports_unhooked_demanding"]))


def sizes():
    for found in documents("E14.json"):
        for step in ("all", "some", "none"):
            charged, taken = found[step]["charged"], found[step]["taken"]
            what = f"{found['count']} allocations of {found['size']} B, {step} of them there: charged less than taken"
            at_most("E14", what, (taken - charged) / MIB, 0, "MiB")
            at_most("E14", f"{found['size']} B, {step} of them there: charged more than taken", (charged - taken) / MIB, 2, "MiB")
        check("E14", f"{found['size']} B: granules of 2 MiB with an address", found["slabs"])


def frameworks():
    for path in sorted(glob.glob(os.path.join(results, "E1.*.log"))):
        name = os.path.basename(path)[3:-4]
        for found in documents(f"E1.{name}.json"):
            problems = found["problems"]
            what = f"{name}: refused as {found['error']}"
            check("E1", what + "".join(f"; {problem}" for problem in problems), len(problems), "problems", "0", not problems)
            check("E1", f"{name}: granted", found["granted"] // MIB, "MiB")
        if not documents(f"E1.{name}.json"):
            check("E1", f"{name}: said nothing", 1, "problems", "0", False)
        for watched in documents(f"E1.{name}.watch"):
            # A standalone share has no agent that counts the memory of a context beyond its charge. E13 has
            # one, and only the tolerance.
            beyond = (watched["most_bytes"] - LIMIT) / MIB
            check("E1", f"{name}: the driver's count beyond the limit, {watched['counted']}", round(beyond), "MiB")


def paths():
    for name in ("paths", "namespace"):
        for found in documents(f"E2.{name}.json"):
            for gpu in found["gpus"]:
                check("E2", f"{name}: is a share", gpu["isShare"], "", "true", gpu["isShare"])
                for finding in gpu["findings"]:
                    verdict = finding["verdict"]
                    check("E2", f"{finding['path']}", verdict, "", "holds", verdict in ("holds", "unsupported"))
    for way in ("deepbind", "copy"):
        for found in documents(f"E2.{way}.json"):
            if way == "copy":
                check("E2", "a copy of the driver's file (the watchdog's, see E13)", "passes" if found["passes"] else "holds")
            else:
                check("E2", "RTLD_DEEPBIND", found["code"], "CUresult", "2", found["code"] == 2)


def costs():
    bare, guarded = documents("E3.bare.json"), documents("E3.guard.json")
    for index, (call, goal) in enumerate([("cuLaunchKernel", 30), ("cuMemAlloc and cuMemFree", None), ("cuMemGetInfo", None)]):
        times = [[run["gpus"][0]["costs"][index]["medianNs"] for run in runs] for runs in (bare, guarded)]
        if not all(times):
            continue
        check("E3", f"{call}, driver alone", round(statistics.median(times[0]), 1), "ns")
        added = [with_guard - without for without, with_guard in zip(*times)]
        what = f"{call}, added by the guard ({min(added):.0f} to {max(added):.0f} in {len(added)} pairs)"
        if goal is None:
            check("E3", what, round(statistics.median(added), 1), "ns")
        else:
            at_most("E3", what, statistics.median(added), goal, "ns")
    bare, guarded = documents("E3.steps.bare.json"), documents("E3.steps.guard.json")
    for step in ("train_step", "graph_replay", "matrix_product", "eager_launch"):
        times = [[run[step]["median_us"] for run in runs] for runs in (bare, guarded)]
        if not all(times):
            continue
        check("E3", f"{step}, driver alone", round(statistics.median(times[0]), 2), "us")
        added = [100 * (with_guard / without - 1) for without, with_guard in zip(*times)]
        what = f"{step}, added by the guard ({min(added):.2f} to {max(added):.2f} in {len(added)} pairs)"
        if step == "eager_launch":
            check("E3", what, round(statistics.median(added), 3), "%")
        else:
            at_most("E3", what, statistics.median(added), 0.5, "%")


def race():
    for found in documents("E9.json"):
        check("E9", "granted", found["granted"], "", "> 0", found["granted"] > 0)
        check("E9", "refused", found["refused"], "", "> 0", found["refused"] > 0)
        zero("E9", "grants after which more than the limit was held", found["over_grants"])
        beyond = found["driver_beyond_limit_bytes"] / MIB
        at_most("E9", f"the driver's count beyond limit and contexts, {found['samples']} samples", beyond, 64, "MiB")
        check("E9", "a context, as the driver counts it", round(found["contexts_bytes"] / 8 / MIB), "MiB")


def prepared():
    for found in documents("E13.json"):
        for figure in found["figures"]:
            check("E13", figure["what"], round(figure["median"], 3), figure["unit"], figure["goal"] or "", figure["met"])


def ends():
    """Result of each part that was started."""
    found = {}
    for path in sorted(glob.glob(os.path.join(results, "*.end"))):
        part = os.path.basename(path)[:-4]
        found[part] = documents(f"{part}.end")[0]
        with open(os.path.join(results, f"{part}.log"), errors="replace") as log:
            found[part]["said"] = log.read()[-4000:]
    return found


def gpu():
    if is_rehearsal:
        return "simulated"
    query = ["nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"]
    try:
        return subprocess.run(query, capture_output=True, text=True, timeout=20).stdout.strip()
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"unknown: {error}"


for evaluate in (identity, frameworks, paths, costs, race, sizes, prepared):
    try:
        evaluate()
    except (KeyError, IndexError, TypeError) as error:
        check(evaluate.__name__, f"cannot be read: {error!r}", 1, "problems", "0", False)
parts = ends()
for part, end in parts.items():
    of_part = [one for one in checks if one["part"] == part]
    if end["exit"] != 0 or not of_part:
        why = "took too long" if end["exit"] in (124, 137) else f"ended with {end['exit']}"
        check(part, f"the part {why}", end["exit"], "", "0", False)
raw = {
    os.path.basename(path): documents(os.path.basename(path))
    for path in sorted(glob.glob(os.path.join(results, "*.json")) + glob.glob(os.path.join(results, "*.watch")))
}
missed = [one for one in checks if one["met"] is False]
width = max((len(one["check"]) for one in checks), default=0)
for one in checks:
    mark = {True: "yes", False: "NO", None: ""}[one["met"]]
    line = f"{one['part']:<4} {one['check']:<{width}}  {one['value']!s:>12} {one['unit']:<8} {one['goal']:<8} {mark}"
    print(line.rstrip(), file=sys.stderr)
print(json.dumps({
    "kind": "GpuCore", "commit": commit, "gpu": gpu(), "kernel": platform.release(), "isRehearsal": is_rehearsal,
    "checks": checks, "parts": parts, "raw": raw,
}))
failed = sorted({one["part"] for one in missed})
print(f"{'missed: ' + ' '.join(failed) if failed else 'all goals are met'}", file=sys.stderr)
sys.exit(1 if failed or not checks else 0)
