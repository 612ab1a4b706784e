"""E3: the cost of a step, measured the same way with and without enforcement.

Prints a line of JSON with medians in microseconds of: an eager step of a small network, a replay of a CUDA graph,
a product of large matrices, and the bare launch of an empty kernel from PyTorch. Results are compared with a product
on the host first.
"""

import json
import statistics
import sys
import time

import torch


def timed(step, repeats, inner):
    for _ in range(3):
        step()
    torch.cuda.synchronize()
    times = []
    for _ in range(repeats):
        begun = time.perf_counter()
        for _ in range(inner):
            step()
        torch.cuda.synchronize()
        times.append((time.perf_counter() - begun) / inner * 1e6)
    quarters = statistics.quantiles(times, n=4)
    return {"median_us": statistics.median(times), "quarters_us": [quarters[0], quarters[2]]}


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
print(json.dumps({
    "experiment": "E3", "label": sys.argv[1],
    "train_step": timed(train, 15, 20),
    "graph_replay": timed(graph.replay, 15, 100),
    "matrix_product": timed(lambda: large @ large, 15, 20),
    "eager_launch": timed(lambda: one.add_(1), 15, 1000),
}), flush=True)
