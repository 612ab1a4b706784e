"""E3: what the guard adds to steps of PyTorch.

Two processes with the guard and two without it do the same steps in turn, while the others wait. The two without it show what the
measurement cannot tell apart.
"""

import json
import subprocess

from figures import check, raw, spread, turns
from share import GIB, command, program

STEPS = {"train_step": 20, "graph_replay": 100, "matrix_product": 100, "eager_launch": 1000}


def measure(processes, names, count):
    """Answers of each process for each step, by turn."""
    found = {name: {way: [] for way in processes} for name in names}
    for turn in turns(list(processes), count):
        for name in names:
            for way in turn:
                process = processes[way]
                print(name, STEPS[name], file=process.stdin, flush=True)
                found[name][way].append(json.loads(process.stdout.readline()))
    return found


def report(found, where, goal):
    for name, ways in found.items():
        times = {way: [answer["us"] for answer in answers] for way, answers in ways.items()}
        both = lambda kind: [(one + other) / 2 for one, other in zip(times[f"{kind} 1"], times[f"{kind} 2"])]
        added = lambda some, others: [100 * (one / other - 1) for one, other in zip(some, others)]
        spread(f"{name}{where}: driver alone", both("bare"), "us")
        spread(f"{name}{where}: one process against the other", added(times["bare 2"], times["bare 1"]), "%")
        # The launch of a small kernel is what E3 times without PyTorch.
        most = None if name == "eager_launch" else goal
        spread(f"{name}{where}: added by the guard", added(both("guard"), both("bare")), "%", most)
    raw(steps=where or "all processors", answers=found)


def main():
    bare = program("steps.py")
    guard = command("e3-steps", 20 * GIB) + bare
    ways = {"bare 1": bare, "guard 1": guard, "bare 2": bare, "guard 2": guard}
    processes = {
        way: subprocess.Popen(run, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for way, run in ways.items()
    }
    for way, process in processes.items():
        assert process.stdout.readline() == "ready\n", f"{way}: it did not start, or a result is wrong"
    check("steps give the right results with the guard and without it", 1, "", "1", True)
    report(measure(processes, STEPS, 24), "", 0.5)
    for process in processes.values():
        print("pin 0", file=process.stdin, flush=True)
        process.stdout.readline()
    report(measure(processes, ["train_step", "eager_launch"], 8), " on two processors", None)
    for process in processes.values():
        process.stdin.close()
        process.wait()


main()
