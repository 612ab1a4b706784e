"""T4: how the driver divides a GPU's time between tenants, and what leases of 20 ms would make of it. No share is involved.

Each tenant has one process or three, and each process one context. A lease here is an agreement of the processes: each launches in its
own time only. Work is launches times the time of one on an idle GPU.
"""

import subprocess
import sys
import time
from ctypes import c_uint64

from driver import Cuda
from figures import check, raw, spread, turns
from loops import Unsupported, load, work

SECONDS = 0.4
LEASE = 20_000_000
# Of two tenants each: the length of each process's kernels in microseconds. Then the lease.
ALONE = {"10 us": ([[10]], 0), "1 ms": ([[1000]], 0)}
TOGETHER = {
    "10 us beside 10 us": ([[10], [10]], 0),
    "the same with leases": ([[10], [10]], LEASE),
    "10 us beside 1 ms": ([[10], [1000]], 0),
    "10 us beside 1 ms with leases": ([[10], [1000]], LEASE),
    "three processes beside one": ([[10, 10, 10], [10]], 0),
    "three processes beside one with leases": ([[10, 10, 10], [10]], LEASE),
}
LENGTHS = {10: "10 us", 1000: "1 ms"}


def child():
    cuda, loops = Cuda(), load()
    cuda.check_map()
    cuda.check_work()
    streams = {}
    print("ready", flush=True)
    for line in sys.stdin:
        command, *numbers = line.split()
        numbers = [int(number) for number in numbers]
        if command == "measure":
            print(work(cuda, loops, numbers[0])[1], flush=True)
        elif command == "make":
            streams[numbers[0]], _ = work(cuda, loops, *numbers)
            streams[numbers[0]].check()
            print("made", flush=True)
        else:
            length, start, end, lease, turn, of = numbers
            cap = 64 if length < 100 else 4
            print(streams[length].run("tenant", c_uint64(start), c_uint64(end), cap, cap // 4, c_uint64(lease), turn, of), flush=True)
            cuda.synchronize()


class Processes:
    def __init__(self, count):
        run = [sys.executable, __file__, "child"]
        self.all = [subprocess.Popen(run, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(count)]
        assert [self.answer(i) for i in range(count)] == ["ready"] * count, "a process did not start"

    def answer(self, i):
        return self.all[i].stdout.readline().strip()

    def ask(self, i, *words):
        print(*words, file=self.all[i].stdin, flush=True)

    def scenario(self, tenants, lease):
        """Launches of each tenant that were finished."""
        start = time.monotonic_ns() + 20_000_000
        end, started = start + int(SECONDS * 1e9), []
        for turn, lengths in enumerate(tenants):
            for length in lengths:
                self.ask(len(started), "run", length, start, end, lease, turn, len(tenants))
                started.append(turn)
        answers = [int(self.answer(i)) for i in range(len(started))]
        return [sum(answer for answer, turn in zip(answers, started) if turn == tenant) for tenant in range(len(tenants))]


def main():
    cuda = Cuda()
    try:
        work(cuda, load(), 10, 1)
    except Unsupported as lacking:
        return check(f"this driver has no {lacking}", 0)
    processes = Processes(4)
    for length in LENGTHS:
        processes.ask(0, "measure", length)
        count = int(processes.answer(0))
        for i in range(4):
            processes.ask(i, "make", length, count)
            assert processes.answer(i) == "made"
    both = ALONE | TOGETHER
    found = {name: [] for name in both}
    for turn in turns(list(both), 7):
        for name in turn:
            found[name].append(processes.scenario(*both[name]))
    for name in ALONE:
        spread(f"{name} alone: launches in a second", [done / SECONDS for done, in found[name]])
    for name, (tenants, _) in TOGETHER.items():
        parts, sums = [], []
        for turn, done in enumerate(found[name]):
            parts_of_solo = [one / found[LENGTHS[lengths[0]]][turn][0] for one, lengths in zip(done, tenants)]
            sums.append(100 * sum(parts_of_solo))
            parts.append(100 * parts_of_solo[0] / sum(parts_of_solo))
        spread(f"{name}: sum of throughput", sums, "%")
        spread(f"{name}: part of the first", parts, "%")
    raw(launches=found)
    for process in processes.all:
        process.stdin.close()
        process.wait()


if __name__ == "__main__":
    child() if sys.argv[1:] == ["child"] else main()
