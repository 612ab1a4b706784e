"""E3: steps of PyTorch: one of training, a replay of a CUDA graph, a product of large matrices, a launch of a small kernel.

As a program it answers each line `STEP COUNT` with microseconds of a step and its process's time, in JSON. `pin` binds all its threads
to two processors.
"""

import json
import os
import resource
import sys
import time


class Steps:
    """The steps, after a check of their results."""

    def __init__(self, torch):
        self.torch = torch
        torch.manual_seed(1)
        small = torch.randn(64, 64)
        assert torch.allclose((small.cuda() @ small.cuda()).cpu(), small @ small, atol=1e-3), "a product is wrong"
        network = torch.nn.Sequential(*(torch.nn.Linear(1024, 1024) for _ in range(24))).cuda().bfloat16()
        batch = torch.randn(32, 1024, device="cuda", dtype=torch.bfloat16)
        optimiser = torch.optim.SGD(network.parameters(), lr=1e-6)

        def train():
            optimiser.zero_grad(set_to_none=True)
            network(batch).square().mean().backward()
            optimiser.step()

        def decode():
            with torch.no_grad():
                return network(batch[:1])

        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            decode()
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            result = decode()
        graph.replay()
        torch.cuda.synchronize()
        assert torch.allclose(result, decode()), "the graph gives another result"
        large = torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16)
        one = torch.zeros(1, device="cuda")
        self.steps = {
            "train_step": train, "graph_replay": graph.replay, "matrix_product": lambda: large @ large,
            "eager_launch": lambda: one.add_(1),
        }
        for step in self.steps.values():
            for _ in range(3):
                step()
        torch.cuda.synchronize()

    def one(self, name):
        self.steps[name]()

    def timed(self, name, count):
        step = self.steps[name]
        # What another process left in caches is not this one's cost.
        for _ in range(max(1, count // 10)):
            step()
        self.torch.cuda.synchronize()
        before, begun = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
        for _ in range(count):
            step()
        self.torch.cuda.synchronize()
        took, after = time.perf_counter() - begun, resource.getrusage(resource.RUSAGE_SELF)
        per_step = lambda field, scale: (getattr(after, field) - getattr(before, field)) / count * scale
        return {
            "us": took / count * 1e6, "user_us": per_step("ru_utime", 1e6), "system_us": per_step("ru_stime", 1e6),
            "waits": per_step("ru_nvcsw", 1), "preemptions": per_step("ru_nivcsw", 1),
        }


def main():
    import torch

    steps = Steps(torch)
    print("ready", flush=True)
    for line in sys.stdin:
        name, count = line.split()
        if name == "pin":
            for thread in os.listdir("/proc/self/task"):
                os.sched_setaffinity(int(thread), {0, 1})
            print("{}", flush=True)
        else:
            print(json.dumps(steps.timed(name, int(count))), flush=True)


if __name__ == "__main__":
    main()
