"""E9: processes of one share allocate and free memory at random, as fast as they can.

    race.py SECONDS PROCESSES LIMIT_BYTES CONTEXT_BYTES COMMAND...

COMMAND starts one client (crates/probe/examples/guard_client.rs) in the share. Two checks are
independent of the share's ledger. The clients' own sum of what they hold must never exceed the limit less the charge
for contexts (CONTEXT_BYTES each). The driver's count is the other. Its memory for contexts beyond their charge is
read before the race, since without an agent it is not counted. Prints a line of JSON.
"""

import json
import subprocess
import sys
import tempfile

from nvml import Watch

seconds, count, limit, context = (int(word) for word in sys.argv[1:5])
command = sys.argv[5:]
watch = Watch(reads=8)
with tempfile.NamedTemporaryFile() as total:
    clients = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(count)
    ]
    said = [client.stdout.readline().strip() for client in clients]
    assert said == ["ready"] * count, f"the clients did not start: {said}"
    roots = [client.pid for client in clients]
    at_rest = watch.sample(roots)
    watch.start(roots)
    left = limit - count * context
    for seed, client in enumerate(clients):
        client.stdin.write(f"race {2**62} {seconds} {seed} {left} {total.name}\n")
        client.stdin.flush()
    answers = [[int(word) for word in client.stdout.readline().split()] for client in clients]
    seen = watch.stop()
    for client in clients:
        client.stdin.close()
        client.wait()
granted, refused, over = (sum(answer[i] for answer in answers) for i in range(3))
highest = max(answer[3] for answer in answers)
beyond_ledger = max(0, at_rest - count * context)
print(json.dumps({
    "granted": granted, "refused": refused, "over_grants": over, "highest_sum_bytes": highest, "sum_limit_bytes": left,
    "contexts_bytes": at_rest, "contexts_beyond_ledger_bytes": beyond_ledger,
    "driver_beyond_limit_bytes": seen["most_bytes"] - limit - beyond_ledger, **seen,
}))
