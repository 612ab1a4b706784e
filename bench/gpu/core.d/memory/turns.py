"""E8: three jobs that do not fit together take turns on the GPU, by shares of `octavo share run` that lend memory.

Each job is to have half of the GPU's memory, or less where the host cannot hold that of all three. Then a process without a share takes
so much of the GPU that two jobs fit and three do not. All jobs are asked for work at the same time, again and again. They check
all their memory and replay a graph. Those that are on the host wait until another one rests.

    turns.py                the part
    turns.py job SIZE       a job, which answers each line of standard input
    turns.py hold SIZE      holds memory until its input ends
"""

import json
import os
import subprocess
import sys
import time
from ctypes import c_uint

from driver import IS_SIMULATED, Cuda, Refused
from figures import MIB, at_least, check, exactly, raw, spread
from nvml import Nvml, Sampling
from share import GIB, command, program
from swap import Kept, Replay

JOBS, ROUNDS = 3, 3
SECONDS = 1
# What a job has beside its memory, and what the plan keeps free while memory is lent.
CONTEXT, RESERVE = (300 if IS_SIMULATED else 640) * MIB, 768 * MIB
# A step that takes longer has waited for the memory.
WAITED = 0.2


def job(size):
    cuda = Cuda()
    cuda.check_map()
    refused = None
    try:
        kept = Kept(cuda, size)
        replay = Replay(cuda)
    except Refused as error:
        refused = str(error)
    print(json.dumps({"pid": os.getpid(), "refused": refused}), flush=True)
    for _ in sys.stdin:
        waits, worked, wrong, is_right = [], 0, 0, True

        def step(do):
            nonlocal worked
            begun = time.monotonic()
            result = do()
            took = time.monotonic() - begun
            if took > WAITED:
                waits.append(took)
            else:
                worked += took
            return result

        step(lambda: cuda.to_host((c_uint * 1)(), kept.blocks[0]))
        wrong += step(kept.wrong)
        while worked < SECONDS:
            is_right &= step(replay.is_right)
        print(json.dumps({"waits": waits, "wrong": wrong, "is_right": is_right}), flush=True)


def hold(size):
    cuda = Cuda()
    if size > 0:
        cuda.allocate(size)
    print(json.dumps({}), flush=True)
    sys.stdin.read()


class Child:
    def __init__(self, run):
        self.process = subprocess.Popen(run, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self):
        print(file=self.process.stdin, flush=True)

    def answer(self):
        line = self.process.stdout.readline()
        assert line, "a process has ended: its error is in the log"
        return json.loads(line)

    def end(self):
        self.process.stdin.close()
        self.process.wait()


def size_of_jobs(total):
    """Bytes of each job. Swapped memory takes half of the host at most, with all jobs there for a moment, or with two."""
    if IS_SIMULATED:
        return GIB
    host = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    half = total // 2 // GIB * GIB
    return half if JOBS * half <= host // 2 else min(half, (host // 4 // GIB - 1) * GIB)


def main():
    nvml = Nvml()
    memory = nvml.memory()
    size = size_of_jobs(memory.total)
    room = 2 * size + size // 2 + JOBS * CONTEXT + RESERVE
    holder = Child(program("memory/turns.py", "hold", max(0, memory.free - room)))
    holder.answer()
    check("memory of a job", size // MIB, "MiB")
    check("memory of the GPU that others leave to all jobs", nvml.memory().free // MIB, "MiB")
    # The least that the driver has counted of a job since it had all its memory.
    least, jobs = {}, []

    def look():
        listed = nvml.processes()
        if listed is None or None in listed.values():
            return
        for pid in list(least):
            least[pid] = min(least[pid], listed.get(pid, 0))

    with Sampling(look, 0.1):
        for number in range(JOBS):
            flags = "--memory-limit", str(size + 2 * CONTEXT)
            # The next one begins while the earlier ones rest.
            jobs.append(Child(command(f"e8-{number}", size // 4, *flags) + program("memory/turns.py", "job", size)))
            found = jobs[-1].answer()
            raw(job=number, **found)
            jobs[-1].pid = found["pid"]
            check(f"job {number}: allocations that were refused", found["refused"] or 0, "", "0", found["refused"] is None)
            if found["refused"]:
                return
            # In another namespace of processes the driver's numbers are others.
            if found["pid"] in (nvml.processes() or {}):
                least[found["pid"]] = size
        times, waits, wrong, is_right = [], [], 0, True
        for turn in range(ROUNDS):
            begun = time.monotonic()
            for one in jobs:
                one.ask()
            answers = [one.answer() for one in jobs]
            took = time.monotonic() - begun
            raw(round=turn, seconds=took, answers=answers)
            times.append(took)
            waits += [wait for answer in answers for wait in answer["waits"]]
            wrong += sum(answer["wrong"] for answer in answers)
            is_right &= all(answer["is_right"] for answer in answers)
    exactly("rounds in which all jobs got their work done", len(times), ROUNDS)
    exactly("wrong samples in all rounds", wrong, 0)
    check("a graph replays in all rounds", is_right, goal="true", met=is_right)
    if all(one.pid in least for one in jobs):
        moved = sum(least[one.pid] < size // 4 for one in jobs)
        at_least("jobs whose memory was away from the GPU, by the driver's count", moved, 2)
    spread("a round: each job works for a second", times, "s")
    if waits:
        spread("a wait for another job to rest for 2 s, to leave, and for this one to return", waits, "s")
    for one in [*jobs, holder]:
        one.end()


if __name__ == "__main__":
    if sys.argv[1:]:
        {"job": job, "hold": hold}[sys.argv[1]](int(sys.argv[2]))
    else:
        main()
