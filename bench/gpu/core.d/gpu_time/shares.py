"""How leases of `octavo share run` divide a GPU's time. All tenants are busy all the time; kernels that the GPU has finished count.

    shares.py error     E4: what each share has had of the time, against what it asks for
    shares.py loss      E5: what two tenants finish together, against one alone and against two without leases
"""

import sys

from figures import MIB, at_most, check, raw, spread, turns
from nvml import Nvml
from worker import operations, start, together

MICROSECONDS = 200
# Percentages of each share and its number of processes.
CASES = {
    "30/70": [(30, 1), (70, 1)],
    "50/25/25": [(50, 1), (25, 1), (25, 1)],
    "10/90": [(10, 1), (90, 1)],
    "50/50, three processes and one": [(50, 3), (50, 1)],
    "8 times 12.5": [(12.5, 1)] * 8,
}
ERROR_SECONDS, ERROR_TURNS = 4, 2
LOSS_SECONDS, LOSS_TURNS = 1.5, 6
MOST_ERROR, MOST_LOSS = 2, 3


def error():
    """The error of a case is the mean over its shares."""
    count, used = operations(MICROSECONDS), Nvml().used()
    errors = []
    for number, (name, shares) in enumerate(CASES.items()):
        owners = [share for share, (_, processes) in enumerate(shares) for _ in range(processes)]
        commands = [(f"e4-{number}-{share}", "--compute", f"{shares[share][0]}%") for share in owners]
        processes = start(count, commands)
        found = []
        for _ in range(ERROR_TURNS):
            answers = together(processes, ERROR_SECONDS)
            raw(case=name, answers=answers)
            kernels = [0] * len(shares)
            for share, answer in zip(owners, answers):
                kernels[share] += answer["kernels"]
            parts = [100 * one / sum(kernels) for one in kernels]
            found.append(sum(abs(part - asked) for part, (asked, _) in zip(parts, shares)) / len(shares))
            text = ", ".join(f"{part:.1f}" for part in parts)
            check(f"{name}: parts of the time, in %, by finished kernels: {text}", round(found[-1], 2), "points")
        for process in processes:
            process.end()
        at_most(f"{name}: error of a share, the worse of {ERROR_TURNS} turns", max(found), MOST_ERROR, "points")
        errors += found
    at_most("error of a share, mean of all cases", sum(errors) / len(errors), MOST_ERROR, "points")
    check("memory of the GPU in use afterwards, beyond that before", (Nvml().used() - used) // MIB, "MiB")


def loss():
    count = operations(MICROSECONDS)
    plain = start(count, [(), ()])
    shared = start(count, [(f"e5-{name}", "--compute", "50%") for name in "ab"])
    ways = {
        "one alone, without a share": plain[:1], "two without leases": plain,
        "one alone in a share": shared[:1], "two with leases": shared,
    }
    found = {name: [] for name in ways}
    for turn in turns(list(ways), LOSS_TURNS):
        for name in turn:
            answers = together(ways[name], LOSS_SECONDS)
            raw(way=name, answers=answers)
            found[name].append(sum(answer["kernels"] for answer in answers) / LOSS_SECONDS)
    for process in plain + shared:
        process.end()
    for name, values in found.items():
        spread(f"{name}: kernels in a second", values)
    lost = lambda of, to: [100 * (1 - one / other) for one, other in zip(found[of], found[to])]
    spread("lost with leases of 20 ms, against one alone", lost("two with leases", "one alone, without a share"), "%", MOST_LOSS)
    spread("the same, against one alone in a share", lost("two with leases", "one alone in a share"), "%")
    spread("the same, against two without leases", lost("two with leases", "two without leases"), "%")


if __name__ == "__main__":
    {"error": error, "loss": loss}[sys.argv[1]]()
