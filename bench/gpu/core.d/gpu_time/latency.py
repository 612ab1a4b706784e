"""E6: requests of a latency-critical share, alone and beside a best-effort one that is always busy.

A request is some kernels of equal length, which are waited for. One comes each few milliseconds. Both shares are those of
`octavo share run`, whose classes are its flags. Times alone and beside are taken in turn. The goal is that of the design.
"""

import math

from figures import at_least, check, raw, spread, turns
from worker import Process, operations, window

MICROSECONDS = 100
LAUNCHES = 10
PERIOD = 5_000_000
SECONDS, TURNS = 3, 6
MOST = 1.2


def p99(values):
    return sorted(values)[math.ceil(0.99 * len(values)) - 1]


def main():
    count = operations(MICROSECONDS)
    critical = Process(count, "e6-critical", "--compute", "50%", "--class", "latency-critical").ready()
    filler = Process(count, "e6-best-effort", "--class", "best-effort").ready()
    found = {"alone": [], "beside best effort": []}
    kernels, alone_kernels = [], []
    for turn in turns(list(found), TURNS):
        for name in turn:
            moments = window(SECONDS)
            critical.ask("requests", *moments, PERIOD, LAUNCHES)
            if name != "alone":
                filler.ask("busy", *moments)
                kernels.append(filler.answer()["kernels"] / SECONDS)
            found[name].append(critical.answer()["times"])
        filler.ask("busy", *window(SECONDS / 3))
        alone_kernels.append(filler.answer()["kernels"] / (SECONDS / 3))
    critical.end()
    filler.end()
    raw(times=found, kernels=kernels, alone_kernels=alone_kernels)
    tails = {name: [p99(times) / 1e6 for times in values] for name, values in found.items()}
    for name, values in tails.items():
        at_least(f"requests {name}: the fewest of a turn", min(map(len, found[name])), 100)
        spread(f"request {name}, p99", values, "ms")
    ratios = [beside / alone for beside, alone in zip(tails["beside best effort"], tails["alone"])]
    spread("p99 beside best effort, of that alone", ratios, "", MOST)
    busy = LAUNCHES * MICROSECONDS * 1000 / PERIOD
    rest = [100 * one / (alone * (1 - busy)) for one, alone in zip(kernels, alone_kernels)]
    spread("best effort: of the time that the other one leaves", rest, "%")
    check("time of the GPU that the requests want", round(100 * busy, 1), "%")


if __name__ == "__main__":
    main()
