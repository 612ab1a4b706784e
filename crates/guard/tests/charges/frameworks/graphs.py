"""CUDA graphs of PyTorch in a share: capture, replay, and memory of the capture's own pool."""

import gc
import sys

import torch

MIB = 1 << 20
limit = int(sys.argv[1])

source = torch.empty(16 * MIB, dtype=torch.uint8, device="cuda")
target = torch.empty_like(source)
before = torch.cuda.memory_reserved()
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    part = torch.empty(128 * MIB, dtype=torch.uint8, device="cuda")
    target.copy_(source)
    part.fill_(1)
assert torch.cuda.memory_reserved() >= before + 128 * MIB
for _ in range(10):
    graph.replay()
torch.cuda.synchronize()

# A capture that does not fit ends in the same error, and the next one works.
wide = torch.cuda.CUDAGraph()
try:
    with torch.cuda.graph(wide):
        torch.empty(limit, dtype=torch.uint8, device="cuda")
    raise SystemExit("the whole share fits beside a context")
except torch.OutOfMemoryError:
    pass
del wide, graph, part
gc.collect()
torch.cuda.empty_cache()
assert torch.cuda.memory_reserved() <= before
again = torch.cuda.CUDAGraph()
with torch.cuda.graph(again):
    target.copy_(source)
again.replay()
torch.cuda.synchronize()
print("all checked")
