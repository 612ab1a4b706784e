"""A process that keeps the GPU busy with kernels of equal work, and counts those that the GPU has finished.

    worker.py OPERATIONS          answers lines of standard input:
        busy FROM UNTIL           launches from now until then; the kernels finished between both moments, and the longest gap
        requests FROM UNTIL PERIOD LAUNCHES
                                  so many launches every so many nanoseconds, each time waited for; the nanoseconds that each took
        alone COUNT               nanoseconds of so many kernels

Moments are nanoseconds of the monotonic clock, which all processes have in common. Each kernel is a chain of so many dependent
operations, whose result is compared with the host's after each answer.
"""

import ctypes
import json
import subprocess
import sys
import time
from ctypes import byref, c_uint, c_void_p

from driver import IS_SIMULATED, Cuda, params
from share import GIB, command

# Kernels between two events, and events in flight. So the GPU never waits for this program.
EVERY = 2
EVENTS = 4
BLOCKING, NO_TIMES = 1, 2
MEMORY = 2 * GIB


def chain(operations):
    """What a kernel computes."""
    value = 1
    for _ in range(operations):
        value = (value * 1664525 + 1013904223) % 2**32
    return value


class Worker:
    def __init__(self, operations):
        self.cuda = cuda = Cuda()
        cuda.check_map()
        cuda.check_work()
        self.result, self.expected = cuda.allocate(4), None if IS_SIMULATED else chain(operations)
        self.stream = c_void_p()
        cuda.call("cuStreamCreate", byref(self.stream), 1)  # that the legacy stream does not wait for
        self.events = [c_void_p() for _ in range(EVENTS)]
        for event in self.events:
            cuda.call("cuEventCreate", byref(event), BLOCKING | NO_TIMES)
        kernel, count = cuda.function("work"), c_uint(operations)
        self.kept = params(self.result, count), count
        shape = [c_uint(number) for number in (32, 1, 1, 128, 1, 1, 0)]
        self.launch = lambda: cuda.call("cuLaunchKernel", kernel, *shape, self.stream, self.kept[0], None)

    def check(self):
        self.cuda.synchronize()
        found = (c_uint * 1)()
        self.cuda.to_host(found, self.result)
        assert self.expected in (None, found[0]), f"a kernel's result is {found[0]}, and not {self.expected}"

    def busy(self, start, end):
        done, longest, last, issued = 0, 0, None, 0
        while True:
            event = self.events[issued % EVENTS]
            if issued >= EVENTS:
                self.cuda.call("cuEventSynchronize", event)
                now = time.monotonic_ns()
                if now >= end:
                    break
                if now >= start:
                    done += EVERY
                    longest = max(longest, now - last if last else 0)
                    last = now
            for _ in range(EVERY):
                self.launch()
            self.cuda.call("cuEventRecord", event, self.stream)
            issued += 1
        return {"kernels": done, "longest": longest}

    def requests(self, start, end, period, launches):
        times, arrival = [], start
        while arrival < end:
            time.sleep(max(0, arrival - time.monotonic_ns()) / 1e9)
            begun = time.monotonic_ns()
            for _ in range(launches):
                self.launch()
            self.cuda.call("cuStreamSynchronize", self.stream)
            now = time.monotonic_ns()
            times.append(now - begun)
            # A late one delays no other: those that have passed meanwhile are left out.
            arrival += period * max(1, -(-(now - arrival) // period))
        return {"times": times}

    def alone(self, count):
        begun = time.monotonic_ns()
        for _ in range(count):
            self.launch()
        self.cuda.call("cuStreamSynchronize", self.stream)
        return {"times": time.monotonic_ns() - begun}


class Process:
    """A worker, in a share of that name with those flags, or in none."""

    def __init__(self, operations, share=None, *flags):
        run = command(share, MEMORY, *flags) if share else []
        run = [*run, sys.executable, __file__, str(operations)]
        self.process = subprocess.Popen(run, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ready(self):
        assert self.answer() == "ready", "a process did not start"
        return self

    def ask(self, *words):
        print(*words, file=self.process.stdin, flush=True)

    def answer(self):
        line = self.process.stdout.readline()
        assert line, "a process has ended: its error is in the log"
        return json.loads(line)

    def end(self):
        self.process.stdin.close()
        self.process.wait()


def start(operations, shares):
    """Processes that start at the same time. `shares` has the arguments of each."""
    processes = [Process(operations, *share) for share in shares]
    return [process.ready() for process in processes]


def window(seconds, lead=0.3):
    """The moments of a window that begins when all have work in flight."""
    begin = time.monotonic_ns() + int(lead * 1e9)
    return begin, begin + int(seconds * 1e9)


def together(processes, seconds):
    """Keeps processes busy at the same time. The answer of each."""
    moments = window(seconds)
    for process in processes:
        process.ask("busy", *moments)
    return [process.answer() for process in processes]


def operations(microseconds):
    """Operations of a kernel of about that length, measured on the idle GPU. A simulated one has a length of its own."""
    count = 20_000
    process = Process(count).ready()
    times = []
    for _ in range(5):
        process.ask("alone", 50)
        times.append(process.answer()["times"] / 50)
    process.end()
    return count if IS_SIMULATED else max(1, int(count * microseconds * 1000 / min(times)))


def main():
    worker = Worker(int(sys.argv[1]))
    print('"ready"', flush=True)
    for line in sys.stdin:
        name, *numbers = line.split()
        found = {"busy": worker.busy, "requests": worker.requests, "alone": worker.alone}[name](*map(int, numbers))
        worker.check()
        print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
