"""T1 to T3: how the driver answers to what an arbiter of GPU time would do to a stream of launches. No share is involved.

    launches.py cost     a mark of finished work after each m-th launch: a value that the GPU writes, or an event
    launches.py cap      throughput with a cap of launches in flight
    launches.py drain    time from the last launch until all are done
"""

import random
import statistics
import sys
import time

from driver import Cuda
from figures import check, quantiles, raw, spread, turns
from loops import Marked, Unsupported, load, work

LAUNCHES = 400  # fewer than the driver queues


def cost(cuda, loops):
    stream = Marked(cuda, loops)
    stream.check()
    ways = [("none", 0, 0)] + [(f"write, m = {m}", m, 0) for m in (1, 4, 16, 64)]
    ways += [(f"event, m = {m}", m, 1) for m in (1, 4, 16)]
    found = {name: [] for name, _, _ in ways}
    for turn in turns(ways, 24):
        for name, every, by_event in turn:
            blocks = []
            for _ in range(12):
                blocks.append(stream.run("marked_launches", LAUNCHES, every, by_event) / LAUNCHES)
                cuda.synchronize()
            found[name].append(statistics.median(blocks))
    spread("a launch without a mark", found["none"], "ns")
    for name in list(found)[1:]:
        spread(f"added to a launch: {name}", [one - none for one, none in zip(found[name], found["none"])], "ns")
    raw(nanoseconds=found)
    on_gpu(cuda, loops)


def on_gpu(cuda, loops):
    """What marks add to the time of a stream that is never empty."""
    stream, _ = work(cuda, loops, 10)
    count = 1000
    ways = [count, 64, 16, 4, 1]
    found = {every: [] for every in ways}
    for turn in turns(ways, 15):
        for every in turn:
            found[every].append(stream.run("capped_launches", count, 1024, every) / count)
    spread("a kernel of 10 us without a mark", found[count], "ns")
    for every in ways[1:]:
        spread(f"added to a kernel of 10 us: write, m = {every}", [one - none for one, none in zip(found[every], found[count])], "ns")


def cap(cuda, loops):
    """Throughput with caps from 2 to 256, of that with 1024."""
    for microseconds in (10, 100):
        stream, _ = work(cuda, loops, microseconds)
        stream.check()
        count = 20_000 // microseconds
        caps = [1024, 2, 4, 8, 16, 32, 64, 128, 256]
        found = {cap: [] for cap in caps}
        for turn in turns(caps, 9):
            for cap in turn:
                found[cap].append(count / stream.run("capped_launches", count, cap, max(1, cap // 4)))
        spread(f"a kernel of {microseconds} us: time of a launch, cap 1024", [1e-3 / one for one in found[1024]], "us")
        for cap in caps[1:]:
            values = [100 * one / free for one, free in zip(found[cap], found[1024])]
            spread(f"a kernel of {microseconds} us: throughput, cap {cap}", values, "%")


def drain(cuda, loops):
    for microseconds, cap, nodes in [(10, 4, 1), (10, 16, 1), (10, 64, 1), (100, 4, 1), (100, 16, 1), (10, 2, 32), (10, 4, 32)]:
        stream, _ = work(cuda, loops, microseconds)
        if nodes > 1:
            stream.capture(nodes)
        stream.check()
        times = []
        for _ in range(150):
            stream.run("marked_launches", cap, max(1, cap // 4), 0)
            times.append(stream.run("drain") / 1000)
        what = f"graphs of {nodes} kernels" if nodes > 1 else "launches"
        quantiles(f"drain of {cap} {what} of {microseconds} us", times, "us")
    training()


def training():
    try:
        import torch
    except ImportError as error:
        return check(f"drain of training: {error}", 0)
    from steps import Steps

    steps = Steps(torch)
    for name in ("train_step", "graph_replay"):
        times = []
        for _ in range(100):
            for _ in range(random.randint(1, 8)):
                steps.one(name)
            begun = time.perf_counter()
            torch.cuda.synchronize()
            times.append((time.perf_counter() - begun) * 1e6)
        quantiles(f"drain of PyTorch, up to 8 times {name}", times, "us")


if __name__ == "__main__":
    cuda, loops = Cuda(), load()
    cuda.check_map()
    cuda.check_work()
    try:
        {"cost": cost, "cap": cap, "drain": drain}[sys.argv[1]](cuda, loops)
    except Unsupported as lacking:
        check(f"this driver has no {lacking}", 0)
