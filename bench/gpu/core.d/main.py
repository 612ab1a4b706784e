"""Runs the parts, each for a limited time, and writes the result of each when it ends."""

import argparse
import ctypes
import json
import os
import platform
import signal
import subprocess
import sys
import threading
import time

from driver import IS_SIMULATED
from nvml import Nvml, below
from parts import MACHINE, PARTS

# Of all parts, for what comes after the last one.
RESERVE_SECONDS = 25
SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER
SETTINGS = "compute_mode,mig.mode.current,persistence_mode,clocks.applications.graphics,power.limit"
MARKS = {True: "yes", False: "NO", None: ""}


class Run:
    def __init__(self, args):
        self.args, self.end = args, time.monotonic() + args.minutes * 60 - RESERVE_SECONDS
        self.commit = os.environ["CORE_COMMIT"]
        # Orphans of a part come to this process, which ends them.
        ctypes.CDLL(None).prctl(SUBREAPER, 1, 0, 0, 0)
        self.warming = None if IS_SIMULATED else warm()

    def path(self, name):
        return os.path.join(self.args.out, name)

    def earlier(self, part):
        """The result of a run of the same commit that brought the part to its end."""
        try:
            with open(self.path(f"{part.name}.json")) as file:
                found = json.load(file)
        except (OSError, ValueError):
            return None
        same = (found["commit"], found["isSimulated"]) == (self.commit, IS_SIMULATED)
        return found if same and not found["isStopped"] and not self.args.again else None

    def part(self, part):
        """Runs a part for its time. Returns its result, which is written to a file."""
        begun = time.monotonic()
        end = min(begun + part.seconds, self.end)
        lines, exits = [], []
        with open(self.path(f"{part.name}.log"), "w") as log:
            for program in part.programs():
                exits.append(self.program(program, end, lines, log))
        checks, raw = [], []
        for line in lines:
            try:
                found = json.loads(line)
            except ValueError:
                found = {"line": line}
            (checks if "check" in found else raw).append(found)
        for code in exits:
            if code != 0:
                why = "stopped at the end of its time" if code is None else f"ended with {code}"
                checks.append({"check": f"a program of the part {why}", "value": code, "unit": "", "goal": "0", "met": False})
        with open(self.path(f"{part.name}.log"), errors="replace") as log:
            tail = log.read()[-4000:]
        result = {
            "kind": "GpuCorePart", "part": part.name, "question": part.question, "commit": self.commit, "isSimulated": IS_SIMULATED,
            "kernel": platform.release(), "seconds": round(time.monotonic() - begun, 1), "isStopped": None in exits, "exits": exits,
            "checks": checks, "log": tail, "raw": raw,
        }
        with open(self.path(f"{part.name}.json.new"), "w") as file:
            json.dump(result, file)
        os.rename(file.name, self.path(f"{part.name}.json"))
        return result

    def program(self, program, end, lines, log):
        """Runs a program. Returns its code, or None if its time was over."""
        left = end - time.monotonic()
        if left <= 0:
            return None
        process = subprocess.Popen(program, stdout=subprocess.PIPE, stderr=log, stdin=subprocess.DEVNULL, text=True, start_new_session=True)
        # What a stopped program has printed until then stays.
        reader = threading.Thread(target=lambda: [lines.append(line.rstrip("\n")) for line in process.stdout], daemon=True)
        reader.start()
        try:
            return process.wait(left)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGTERM)
            try:
                process.wait(3)
            except subprocess.TimeoutExpired:
                pass
            return None
        finally:
            self.end_descendants()
            reader.join(2)

    def end_descendants(self):
        """Ends what a part has left behind, by its pid."""
        others = {os.getpid()} | (below([self.warming.pid]) if self.warming else set())
        until = time.monotonic() + 3
        while (left := below([os.getpid()]) - others) and time.monotonic() < until:
            for pid in left:
                try:
                    os.kill(pid, signal.SIGKILL)
                    os.waitpid(pid, os.WNOHANG)
                except (ProcessLookupError, ChildProcessError):
                    pass
            time.sleep(0.02)


def warm():
    """Reads the frameworks' files in the background, so that no part waits for the disk."""
    names = "torch", "triton", "jax", "cupy"
    code = f"import importlib\nfor name in {names}:\n  try: importlib.import_module(name)\n  except Exception: pass"
    quiet = subprocess.DEVNULL
    return subprocess.Popen([sys.executable, "-c", code], stdin=quiet, stdout=quiet, stderr=quiet)


def settings():
    if IS_SIMULATED:
        return "simulated"
    query = ["nvidia-smi", f"--query-gpu={SETTINGS}", "--format=csv,noheader", "-i", "0"]
    try:
        return subprocess.run(query, capture_output=True, text=True, timeout=10).stdout.strip()
    except (OSError, subprocess.TimeoutExpired) as error:
        return repr(error)


def table(results):
    checks = [(result["part"], one) for result in results for one in result["checks"]]
    width = min(110, max((len(one["check"]) for _, one in checks), default=0))
    for part, one in checks:
        line = f"{part:<8}{one['check']:<{width}}  {one['value']!s:>12} {one['unit']:<5} {one['goal']:<9} {MARKS[one['met']]}"
        yield line.rstrip()


def main():
    args = arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    chosen = [part for part in PARTS if not args.only or {part.name, part.name[0]} & set(args.only)]
    if args.list:
        for part in PARTS:
            print(f"{part.name:<5}{part.seconds:>4} s  {part.question}")
        return 0
    os.makedirs(args.out, exist_ok=True)
    run = Run(args)
    machine = run.part(MACHINE)
    print(*table([machine]), sep="\n", flush=True)
    if machine["exits"] != [0]:
        print(machine["log"], f"no part was run; see {run.path('machine.json')}", sep="\n")
        return 2
    # The driver's state of the GPU ends with the last process that has it open, and every start would then take seconds.
    nvml, before = Nvml(), settings()
    results, not_run = [machine], []
    for part in chosen:
        if earlier := run.earlier(part):
            print(f"==> {part.name}: its result is there, --again repeats it", flush=True)
            results.append(earlier)
            continue
        # With less than half of its time it would only be stopped.
        if run.end - time.monotonic() < part.seconds / 2:
            not_run.append(part.name)
            continue
        print(f"==> {part.name}: {part.question}", flush=True)
        result = run.part(part)
        results.append(result)
        print(*table([result]), f"    {part.name} took {result['seconds']} s", sep="\n", flush=True)
        if any(code != 0 for code in result["exits"]):
            print(result["log"][-1500:])
        with open(run.path("table.txt"), "w") as file:
            print(*table(results), sep="\n", file=file)
    if run.warming:
        run.warming.kill()
    missed = sorted({result["part"] for result in results for one in result["checks"] if one["met"] is False})
    if settings() != before:
        missed.append(f"settings of the GPU: {before} before, {settings()} after")
    print(f"missed: {' '.join(missed)}" if missed else "all goals are met")
    if not_run:
        print(f"no time was left for {' '.join(not_run)}: run it again, and the other parts are skipped")
    print(f"results: {args.out}; {nvml.used() >> 20} MiB of the GPU are in use")
    return 1 if missed else 0


def arguments():
    epilog = "\n".join(f"  {part.name:<4}{part.seconds:>4} s  {part.question}" for part in PARTS)
    parser = argparse.ArgumentParser(
        prog="bench/gpu/core", formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Memory enforcement and GPU time on a machine with a real GPU.",
        epilog=f"bench/gpu/core --build              here: builds what it needs\n"
        f"bench/gpu/core --rehearse [NODE]    on the simulated driver\n\nparts and the most that each may take:\n{epilog}",
    )
    parser.add_argument("--only", type=lambda text: text.split(","), metavar="PARTS", help="such as E0,T1; T is all of T1 to T4")
    parser.add_argument("--again", action="store_true", help="run parts whose result is there, too")
    parser.add_argument("--out", default=os.environ.get("OUT") or "/tmp/octavo-core", help="folder of the results (%(default)s)")
    parser.add_argument("--minutes", type=int, default=8, help="of all parts together (%(default)s)")
    parser.add_argument("--list", action="store_true", help="list the parts")
    args = parser.parse_args()
    unknown = set(args.only or []) - {part.name for part in PARTS} - {"E", "T"}
    if unknown:
        parser.error(f"there is no part {' '.join(sorted(unknown))}")
    return args


if __name__ == "__main__":
    sys.exit(main())
