"""E1: each framework allocates memory in a share until it is refused.

    frameworks.py NAME LIMIT_BYTES [SETTLE_SECONDS]

NAME is torch, torch-expandable, torch-async, cupy, jax, jax-platform, triton or cuda. The framework creates its
context, prints a line, and then waits for SETTLE_SECONDS (0 if absent): meanwhile its context is measured.

Prints a line of JSON: bytes granted, the error's class, what the framework reports as total. Fails if more than the
limit was granted, if the refusal was not the framework's own out-of-memory error, if the memory reported is not
the limit, or if PyTorch has another allocator than was wanted.
"""

import json
import os
import sys
import time

NAME, LIMIT = sys.argv[1], int(sys.argv[2])
SETTLE = float(sys.argv[3]) if len(sys.argv) > 3 else 0.0
PIECE = 64 << 20


def fill(take, refused):
    """Allocates pieces until `refused` is raised. Returns the pieces and the error."""
    held, error = [], None
    for _ in range(LIMIT // PIECE * 4):
        try:
            held.append(take(PIECE))
        except refused as caught:
            error = caught
            break
    return held, error


def settle():
    print(json.dumps({"step": "context"}), flush=True)
    time.sleep(SETTLE)


def fill_torch(expandable=False, backend=None):
    config = [f"expandable_segments:{expandable}"] + ([f"backend:{backend}"] if backend else [])
    os.environ["PYTORCH_CUDA_ALLOC_CONF"] = ",".join(config)
    import torch

    torch.ones(1, device="cuda").add_(1)
    torch.cuda.synchronize()
    settle()
    total = torch.cuda.get_device_properties(0).total_memory
    held, error = fill(
        lambda size: torch.empty(size, dtype=torch.uint8, device="cuda"), torch.cuda.OutOfMemoryError
    )
    free, seen = torch.cuda.mem_get_info()
    last = held[-1]
    last.fill_(7)
    assert int(last[-1].item()) == 7, "the memory does not hold what was written"
    return held, error, {
        "total": total, "mem_get_info_total": seen, "free_at_end": free,
        "allocator": allocator(torch), "wanted_allocator": backend or ("expandable" if expandable else "native"),
    }


def allocator(torch):
    """PyTorch's allocator. A setting that it does not know any more is ignored in silence."""
    name = torch.cuda.get_allocator_backend()
    if name == "native":
        settings = torch.cuda.memory._snapshot().get("allocator_settings", {})
        return "expandable" if settings.get("expandable_segments") else "native"
    return name


def cupy():
    import cupy

    cupy.cuda.Device(0).use()
    cupy.zeros(1)
    settle()
    held, error = fill(cupy.cuda.alloc, cupy.cuda.memory.OutOfMemoryError)
    free, total = cupy.cuda.runtime.memGetInfo()
    return held, error, {"total": total, "free_at_end": free}


def jax(allocator=None):
    # By default it reserves three quarters of the visible memory, and its own allocator refuses more.
    os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "true"
    os.environ["XLA_FLAGS"] = "--xla_gpu_autotune_level=0"
    if allocator:
        os.environ["XLA_PYTHON_CLIENT_ALLOCATOR"] = allocator
    import jax
    import jax.numpy as jnp

    assert jax.devices()[0].platform == "gpu", f"no GPU: {jax.devices()}"
    jnp.zeros(1).block_until_ready()
    settle()
    stats = jax.devices()[0].memory_stats() or {}
    held, error = fill(lambda size: jnp.zeros(size, jnp.uint8).block_until_ready(), Exception)
    assert "RESOURCE_EXHAUSTED" in str(error), f"another error: {error}"
    return held, error, {"total": None, "preallocated_limit": stats.get("bytes_limit")}


def triton():
    # The kernel's names are looked up in the module.
    global tl
    import torch
    import triton
    import triton.language as tl

    @triton.jit
    def double(source, target, count, block: tl.constexpr):
        at = tl.program_id(0) * block + tl.arange(0, block)
        tl.store(target + at, 2 * tl.load(source + at, mask=at < count), mask=at < count)

    source = torch.arange(1 << 20, device="cuda", dtype=torch.int32)
    target = torch.empty_like(source)
    double[(1024,)](source, target, source.numel(), 1024)
    assert torch.equal(target, 2 * source), "the kernel's result is wrong"
    return fill_torch()


def cuda():
    from cuda.bindings import driver

    def checked(result):
        code, *rest = result
        if code != driver.CUresult.CUDA_SUCCESS:
            raise MemoryError(code) if code == driver.CUresult.CUDA_ERROR_OUT_OF_MEMORY else RuntimeError(code)
        return rest[0] if len(rest) == 1 else rest

    checked(driver.cuInit(0))
    context = checked(driver.cuDevicePrimaryCtxRetain(0))
    checked(driver.cuCtxSetCurrent(context))
    settle()
    held, error = fill(lambda size: checked(driver.cuMemAlloc(size)), MemoryError)
    free, total = checked(driver.cuMemGetInfo())
    return held, error, {"total": total, "free_at_end": free}


WAYS = {
    "torch": fill_torch,
    "torch-expandable": lambda: fill_torch(expandable=True),
    "torch-async": lambda: fill_torch(backend="cudaMallocAsync"),
    "cupy": cupy,
    "jax": jax,
    "jax-platform": lambda: jax("platform"),
    "triton": triton,
    "cuda": cuda,
}

held, error, facts = WAYS[NAME]()
# Meanwhile the driver's count is read.
time.sleep(SETTLE / 2)
granted = len(held) * PIECE
problems = []
if error is None:
    problems.append("nothing was refused")
if granted > LIMIT:
    problems.append("more than the limit was granted")
if granted < LIMIT // 2:
    problems.append("less than half of the limit was granted")
if facts.get("total") not in (None, LIMIT):
    problems.append("the memory that is reported is not the limit")
if facts.get("allocator") != facts.get("wanted_allocator"):
    problems.append(f"PyTorch's allocator is {facts['allocator']}")
print(json.dumps({
    "experiment": "E1", "framework": NAME, "limit": LIMIT, "granted": granted,
    "error": type(error).__name__, **facts, "problems": problems,
}), flush=True)
sys.exit(1 if problems else 0)
