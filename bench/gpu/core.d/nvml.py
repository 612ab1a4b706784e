"""Memory of processes and of GPU 0 as counted by the driver, from NVML."""

import ctypes
import os
import threading


class Process(ctypes.Structure):
    _fields_ = [("pid", ctypes.c_uint), ("used", ctypes.c_ulonglong), ("gi", ctypes.c_uint), ("ci", ctypes.c_uint)]


class Memory(ctypes.Structure):
    _fields_ = [("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong)]


class Nvml:
    UNKNOWN = 2**64 - 1

    def __init__(self):
        self.library = ctypes.CDLL("libnvidia-ml.so.1")
        assert self.library.nvmlInit_v2() == 0, "NVML does not start"
        self.device = ctypes.c_void_p()
        assert self.library.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(self.device)) == 0

    def processes(self):
        """Bytes of each process by pid; None for a process, or at all, if the driver does not report them."""
        count = ctypes.c_uint(1024)
        found = (Process * 1024)()
        code = self.library.nvmlDeviceGetComputeRunningProcesses_v3(self.device, ctypes.byref(count), found)
        if code != 0:
            return None
        listed = [(process.pid, process.used) for process in found[: count.value]]
        return {pid: None if used == self.UNKNOWN else used for pid, used in listed}

    def used(self):
        """Used bytes of the GPU, of all processes."""
        memory = Memory()
        assert self.library.nvmlDeviceGetMemoryInfo(self.device, ctypes.byref(memory)) == 0
        return memory.used


def below(roots):
    """Some processes and all their descendants."""
    parents = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat") as file:
                    parents[int(name)] = int(file.read().rsplit(")", 1)[1].split()[1])
            except OSError:
                pass
    found = set(roots)
    while True:
        grown = found | {pid for pid, parent in parents.items() if parent in found}
        if grown == found:
            return found
        found = grown


class Watch:
    """Samples the memory of some processes and their descendants until it is stopped.

    The driver may not report processes, as in some virtual machines. Then the sample is the growth of the whole GPU's
    usage since the start, which is the same as long as no other process uses it.

    The driver lists processes in sequence, so memory that moves between them meanwhile may be counted twice. A sample
    is the smallest of `reads` consecutive reads: an excess over a limit lasts longer than that.
    """

    def __init__(self, period=0.02, reads=1):
        self.nvml, self.period, self.reads = Nvml(), period, reads
        self.before = self.nvml.used()
        self.by_process, self.by_gpu, self.samples, self.unknown = 0, 0, 0, 0
        self.over = threading.Event()

    def sample(self, roots):
        tree = below(roots)
        by_process, by_gpu = zip(*(self.read(tree) for _ in range(self.reads)))
        self.by_process = max(self.by_process, min(by_process))
        self.by_gpu = max(self.by_gpu, min(by_gpu))
        self.samples += 1
        return min(by_process) if self.by_process else min(by_gpu)

    def read(self, tree):
        known = self.nvml.processes() or {}
        mine = [used for pid, used in known.items() if pid in tree]
        self.unknown += sum(used is None for used in mine)
        return sum(used for used in mine if used is not None), self.nvml.used() - self.before

    def start(self, roots):
        def look():
            while not self.over.wait(self.period):
                self.sample(roots)

        self.thread = threading.Thread(target=look)
        self.thread.start()

    def stop(self):
        self.over.set()
        self.thread.join()
        return {
            "most_bytes": self.by_process or self.by_gpu,
            "counted": "by process" if self.by_process else "by GPU",
            "by_gpu_bytes": self.by_gpu, "samples": self.samples, "without_figure": self.unknown,
        }
