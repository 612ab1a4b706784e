"""E9: processes of one share allocate and free memory at random, as fast as they can.

    race.py SECONDS

The processes are clients of crates/probe/examples/guard_client.rs. Two checks are independent of the share's ledger. The
clients' own sum of what they hold must never exceed the limit less the charge for contexts beforehand. The driver's count of
the GPU is the other: nothing else may use it. Its memory for contexts beyond their charge is read before the race, since without an
agent it is not counted.
"""

import subprocess
import sys
import tempfile

from driver import IS_SIMULATED
from figures import MIB, at_least, at_most, check, exactly, raw
from nvml import Nvml, Sampling
from share import CONTEXT_CHARGE, GIB, built, command

seconds, count, limit = sys.argv[1], 8, 10 * GIB
nvml = Nvml()
before, most = nvml.used(), [0]


def look():
    # One figure of the whole GPU. The simulated driver's is a sum over processes, which may count memory twice that moves between
    # them; an excess over the limit lasts longer than a few reads.
    most[0] = max(most[0], min(nvml.used() for _ in range(8 if IS_SIMULATED else 1)) - before)


run = [*command("e9", limit), built("guard_client")]
with tempfile.NamedTemporaryFile() as total:
    clients = [subprocess.Popen(run, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(count)]
    lines = [client.stdout.readline().strip() for client in clients]
    assert lines == ["ready"] * count, f"the clients did not start: {lines}"
    look()
    at_rest, left = most[0], limit - count * CONTEXT_CHARGE
    with Sampling(look) as sampling:
        for seed, client in enumerate(clients):
            client.stdin.write(f"race {2**62} {seconds} {seed} {left} {total.name}\n")
            client.stdin.flush()
        answers = [[int(word) for word in client.stdout.readline().split()] for client in clients]
    for client in clients:
        client.stdin.close()
        client.wait()
granted, refused, over = (sum(answer[i] for answer in answers) for i in range(3))
beyond_ledger = max(0, at_rest - count * CONTEXT_CHARGE)
at_least("granted", granted, 1)
at_least("refused", refused, 1)
exactly("grants after which more than the limit was held", over, 0)
beyond = most[0] - limit - beyond_ledger
at_most(f"the driver's count beyond limit and contexts, {sampling.samples} samples", beyond / MIB, 64, "MiB")
check("a context, as the driver counts it", round(at_rest / count / MIB), "MiB")
raw(most=most[0], at_rest=at_rest, highest_sum=max(answer[3] for answer in answers), sum_limit=left)
