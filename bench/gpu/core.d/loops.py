"""The loops of loops.c, and streams whose work the GPU marks as done."""

import ctypes
import os
import statistics
from ctypes import c_uint, c_uint64, c_void_p

from driver import params

NANOSECONDS_OF = ["launches", "allocations", "async_allocations", "infos", "marked_launches", "drain", "capped_launches", "tenant"]
CAN_WRITE_64 = 122  # CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS


def load():
    library = ctypes.CDLL(os.environ["CORE_LOOPS"])
    for name in NANOSECONDS_OF:
        getattr(library, name).restype = c_uint64
    return library


class Struct(ctypes.Structure):
    _fields_ = [
        ("launch", c_void_p), ("graph_launch", c_void_p), ("write", c_void_p), ("record", c_void_p),
        ("function", c_void_p), ("stream", c_void_p), ("graph", c_void_p), ("event", c_void_p), ("params", c_void_p),
        ("grid", c_uint), ("block", c_uint), ("word_on_gpu", c_uint64), ("word", c_void_p),
        ("issued", c_uint64), ("written", c_uint64),
    ]


class Unsupported(Exception):
    """The driver cannot do what a part is about."""


class Marked:
    """A stream with a kernel. The GPU writes the number of its last finished launch to memory of the host."""

    def __init__(self, cuda, loops, kernel="nothing", *arguments, grid=1, block=1):
        write = "cuStreamWriteValue64_v2"
        if not cuda.has(write) or cuda.attribute(CAN_WRITE_64) != 1:
            raise Unsupported(write)
        self.cuda, self.loops = cuda, loops
        address = lambda name: ctypes.cast(getattr(cuda.library, name), c_void_p)
        word, on_gpu, stream, event = c_void_p(), c_uint64(), c_void_p(), c_void_p()
        cuda.call("cuMemHostAlloc", ctypes.byref(word), ctypes.c_size_t(4096), 2)  # on the GPU's side, too
        cuda.call("cuMemHostGetDevicePointer_v2", ctypes.byref(on_gpu), word, 0)
        cuda.call("cuStreamCreate", ctypes.byref(stream), 1)  # that the legacy stream does not wait for
        cuda.call("cuEventCreate", ctypes.byref(event), 2)  # without times
        self.word = c_uint64.from_address(word.value)
        self.word.value = 0
        self.kept = (arguments, params(*arguments))
        self.struct = Struct(
            launch=address("cuLaunchKernel"), graph_launch=address("cuGraphLaunch"), write=address(write),
            record=address("cuEventRecord"), function=cuda.function(kernel), stream=stream, event=event,
            params=ctypes.cast(self.kept[1], c_void_p) if arguments else None, grid=grid, block=block,
            word_on_gpu=on_gpu, word=word,
        )

    def run(self, loop, *arguments):
        """Nanoseconds of a loop; what `tenant` returns is a number of launches."""
        found = getattr(self.loops, loop)(ctypes.byref(self.struct), *arguments)
        assert found or loop == "tenant", f"{loop} failed, or nothing was finished for two seconds"
        return found

    def check(self):
        """The word follows the launches."""
        self.run("marked_launches", 100, 10, 0)
        self.cuda.synchronize()
        assert self.word.value == self.struct.issued, f"the GPU wrote {self.word.value} after {self.struct.issued} launches"

    def capture(self, launches):
        """Makes its launch that of a graph with so many launches in it."""
        graph, ready = c_void_p(), c_void_p()
        stream = c_void_p(self.struct.stream)
        self.cuda.call("cuStreamBeginCapture_v2", stream, 2)  # without a restriction for other threads
        for _ in range(launches):
            shape = map(c_uint, (self.struct.grid, 1, 1, self.struct.block, 1, 1, 0))
            self.cuda.call("cuLaunchKernel", c_void_p(self.struct.function), *shape, stream, self.kept[1], None)
        self.cuda.call("cuStreamEndCapture", stream, ctypes.byref(graph))
        self.cuda.call("cuGraphInstantiateWithFlags", ctypes.byref(ready), graph, c_uint64(0))
        self.struct.graph = ready


def work(cuda, loops, microseconds, count=None):
    """A marked stream of kernels of about that length. Their number of operations is `count`, or measured. Returns both."""
    result = cuda.allocate(4)
    if count is None:
        at_first = 20_000
        trial = Marked(cuda, loops, "work", result, c_uint(at_first), grid=32, block=128)
        times = [trial.run("capped_launches", 50, 32, 8) / 50 for _ in range(6)]
        count = max(1, int(at_first * microseconds * 1000 / statistics.median(times[1:])))
    return Marked(cuda, loops, "work", result, c_uint(count), grid=32, block=128), count
