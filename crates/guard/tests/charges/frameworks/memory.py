"""PyTorch's allocator in a share: what it shows, where it ends, and that it goes on afterwards."""

import gc
import os
import sys

import torch

MIB = 1 << 20
limit = int(sys.argv[1])

free, total = torch.cuda.mem_get_info()
assert total == limit, (total, limit)
assert torch.cuda.get_device_properties(0).total_memory == limit
assert free <= limit


def fill(size):
    """Tensors of a size until the share is full."""
    held = []
    while True:
        try:
            held.append(torch.empty(size, dtype=torch.uint8, device="cuda"))
        except torch.OutOfMemoryError:
            return held


for size in (64 * MIB, 20 * MIB, 3 * MIB):
    held = fill(size)
    free, _ = torch.cuda.mem_get_info()
    reserved = torch.cuda.memory_reserved()
    print(f"{size >> 20} MiB: {len(held)} tensors, {reserved >> 20} MiB reserved, {free >> 20} MiB free")
    assert reserved <= limit
    # The allocator takes memory by segments of 20 MiB, or as much as a larger tensor needs.
    assert free < max(size, 20 * MIB) + 2 * MIB, free
    del held
    gc.collect()
    torch.cuda.empty_cache()

one = torch.empty(1 * MIB, dtype=torch.uint8, device="cuda")
text = torch.arange(256, dtype=torch.uint8)
one[:256].copy_(text)
assert torch.equal(one[:256].cpu(), text)

streams = [torch.cuda.Stream() for _ in range(4)]
for stream in streams:
    with torch.cuda.stream(stream):
        part = torch.empty(32 * MIB, dtype=torch.uint8, device="cuda")
        part.record_stream(stream)
        event = torch.cuda.Event(enable_timing=True)
        event.record(stream)
        event.synchronize()
torch.cuda.synchronize()
pinned = torch.empty(8 * MIB, dtype=torch.uint8, pin_memory=True)
pinned.to("cuda", non_blocking=True)
torch.cuda.synchronize()

# Exactly at the limit: as much as is free, and not one unit of the allocator more.
unit = 20 * MIB if "expandable" in os.environ["PYTORCH_ALLOC_CONF"] else 2 * MIB
del one, part
gc.collect()
torch.cuda.empty_cache()
free, _ = torch.cuda.mem_get_info()
largest = free // unit * unit
torch.empty(largest, dtype=torch.uint8, device="cuda")
torch.cuda.empty_cache()
try:
    torch.empty(largest + unit, dtype=torch.uint8, device="cuda")
    raise SystemExit(f"{largest + unit} bytes fit where {free} are free")
except torch.OutOfMemoryError as error:
    print(str(error).splitlines()[0])
print("all checked")
