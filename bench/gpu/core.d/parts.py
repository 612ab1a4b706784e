"""The parts: their questions, the most seconds that each may take, and the programs of each."""

import importlib.util
from dataclasses import dataclass

from driver import IS_SIMULATED
from share import GIB, command, program

FRAMEWORKS = {
    "torch": "torch", "torch-expandable": "torch", "torch-async": "torch", "cupy": "cupy", "jax": "jax", "jax-platform": "jax",
    "triton": "triton", "cuda": "cuda",
}


@dataclass
class Part:
    name: str
    seconds: int
    question: str
    programs: object  # returns them


def has(module):
    return importlib.util.find_spec(module) is not None


def frameworks():
    """Those that are installed. The simulated driver runs no kernels, so it serves CUDA's own bindings alone."""
    return [name for name, module in FRAMEWORKS.items() if has(module) and (name == "cuda" or not IS_SIMULATED)]


def identity():
    names = program("memory/identity.py", "outside"), command("e0", 8 * GIB) + program("memory/identity.py", "inside")
    return [*names, program("memory/contexts.py")]


def limits():
    return ([program("memory/watch.py", *frameworks())] if frameworks() else []) + [program("memory/runtime.py")]


def costs():
    calls = command("e3-calls", 8 * GIB) + program("memory/calls.py")
    return [calls, program("memory/pairs.py")] if has("torch") and not IS_SIMULATED else [calls]


MACHINE = Part("machine", 30, "what is this machine?", lambda: [program("machine.py")])

# In the order of their run: what takes long and needs most of the GPU comes late.
PARTS = [
    Part("E0", 50, "does every lookup of a driver's function lead to the guard, and what does a context take?", identity),
    Part("E2", 70, "is every way to allocate limited, and which bypasses pass?", lambda: [
        program("memory/foreign.py", "probe"), program("memory/foreign.py", "namespace"), program("memory/bypass.py")]),
    Part("E9", 45, "do racing processes exceed the limit?", lambda: [program("memory/race.py", 3 if IS_SIMULATED else 25)]),
    Part("E14", 20, "is plain memory of any size charged for at least what the driver takes for it?", lambda: [program("memory/sizes.py")]),
    Part("E10", 50, "does a neighbour go on while programs of another share fail?", lambda: [program("faults.py")]),
    Part("E1", 70, "do frameworks report the limit as their own out-of-memory error?", limits),
    Part("E3", 75, "what does enforcement add to a call and to a step?", costs),
    Part("E13", 80, "does a share of the agent limit PyTorch, and is a program that bypasses the guard stopped?", lambda: [
        program("memory/foreign.py", "real-share", *(name for name in frameworks() if name in ("torch", "cupy", "cuda")))]),
    Part("E15", 60, "does the agent stop programs that no hook sees?", lambda: [
        program("memory/foreign.py", "bypasses", *(["copy"] if IS_SIMULATED else ["globals", "copy-managed", "inherited", "ipc"]))]),
    Part("E16", 60, "does a GPU that works pass the test after a repair?", lambda: [program("verify.py")]),
    Part("E7", 75, "how long does a process take to the host and back, and is all as it was?", lambda: [program("swap.py")]),
    Part("E8", 150, "do three jobs that do not fit together take turns?", lambda: [program("memory/turns.py")]),
    Part("E4", 110, "do shares have the parts of the GPU's time that they ask for?", lambda: [program("gpu_time/shares.py", "error")]),
    Part("E5", 75, "what do leases of 20 ms cost in throughput?", lambda: [program("gpu_time/shares.py", "loss")]),
    Part("E6", 75, "do requests of a latency-critical share take longer beside best effort?", lambda: [program("gpu_time/latency.py")]),
    Part("T1", 20, "what does a mark of finished work add to a launch?", lambda: [program("gpu_time/launches.py", "cost")]),
    Part("T2", 25, "what throughput is left with a cap of launches in flight?", lambda: [program("gpu_time/launches.py", "cap")]),
    Part("T3", 40, "how long does a stream take to drain?", lambda: [program("gpu_time/launches.py", "drain")]),
    Part("T4", 50, "how does the driver divide time between tenants?", lambda: [program("gpu_time/tenants.py")]),
]
