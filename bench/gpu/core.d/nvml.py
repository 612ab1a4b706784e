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

    def memory(self):
        """Total, free and used bytes of the GPU."""
        memory = Memory()
        assert self.library.nvmlDeviceGetMemoryInfo(self.device, ctypes.byref(memory)) == 0
        return memory

    def used(self):
        """Used bytes of the GPU, of all processes."""
        return self.memory().used


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


class Sampling:
    """Calls a function again and again in a thread, until it is left."""

    def __init__(self, look, period=0.02):
        self.look, self.period, self.samples = look, period, 0
        self.over = threading.Event()
        self.thread = threading.Thread(target=self.run)

    def run(self):
        while not self.over.wait(self.period):
            self.look()
            self.samples += 1

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.thread.join()
