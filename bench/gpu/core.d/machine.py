"""Facts of the machine. Ends with 1 if CUDA, NVML or a share cannot be used: then no part could run."""

import importlib.metadata
import os
import platform
import subprocess
import sys

import elf
from driver import IS_SIMULATED, Cuda
from figures import MIB, at_least, check, raw
from nvml import Nvml
from share import GIB, command

PACKAGES = ["torch", "triton", "jax", "cupy-cuda12x", "cupy-cuda13x", "cuda-bindings", "numpy"]


def output(*words):
    try:
        return subprocess.run(words, capture_output=True, text=True, timeout=10).stdout.strip()
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)


def version(package):
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def main():
    libraries = [line.strip() for line in output("ldconfig", "-p").splitlines() if "libcuda" in line or "libnvidia-ml" in line]
    with open("/proc/self/mounts") as mounts:
        nvidia = [line.split()[1] for line in mounts if "nvidia" in line]
    raw(
        libraries=libraries, mounts=nvidia, kernel=platform.release(), cgroup=open("/proc/self/cgroup").read().strip(),
        processors=len(os.sched_getaffinity(0)), python=platform.python_version(),
        packages={package: version(package) for package in PACKAGES if version(package)},
        settings="" if IS_SIMULATED else output("nvidia-smi", "-q", "-d", "MEMORY,CLOCK,COMPUTE,PERFORMANCE"),
    )
    nvml = Nvml()
    memory, processes = nvml.memory(), nvml.processes()
    cuda = Cuda()
    cuda.check_map()
    gpu = "simulated" if IS_SIMULATED else output("nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader")
    check(f"GPU: {gpu}", 1)
    share = subprocess.run([*command("machine", GIB), "true"], stderr=subprocess.PIPE, text=True, timeout=20)
    assert share.returncode == 0, f"a share cannot be used: {share.stderr}"
    path, _ = elf.mapped(r"/libcuda\.so")
    check(f"driver's library: {path}", 1)
    check("memory of the GPU", memory.total // MIB, "MiB")
    at_least("free memory of the GPU", memory.free / MIB, 24 << 10, "MiB")
    check("processes on the GPU before", "unknown" if processes is None else len(processes), "", "0", not processes)


try:
    main()
except Exception as error:
    print(f"no part can run: {error!r}", file=sys.stderr)
    sys.exit(1)
