"""E2: one way to get memory, tried in a share.

    ways.py WAY BYTES

Prints lines of JSON, and waits for a line after each: there the driver's count is read. With $HOLD it keeps the memory for so many
seconds at the end.
"""

import ctypes
import glob
import json
import mmap
import os
import shutil
import socket
import sys
import tempfile
import time
from ctypes import byref, c_int, c_size_t, c_uint, c_uint64, c_ulonglong, c_void_p

from driver import Cuda, Refused

PIECE = 256 << 20
LIMIT_STACK = 0
PAGEABLE_ACCESS = 88  # CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS
MULTIPROCESSORS, MAX_THREADS = 16, 39


def step(**values):
    print(json.dumps(values), flush=True)
    sys.stdin.readline()


def fill(size, take, most):
    """Takes pieces until one is refused or `most` bytes are there. Returns the bytes and the code."""
    taken = 0
    while taken < most:
        try:
            take(size)
        except Refused as refused:
            return taken, refused.code
        taken += size
    return taken, 0


def result(what, taken, code, **more):
    step(what=what, granted=taken, code=code, **more)
    time.sleep(float(os.environ.get("HOLD", 0)))


def deepbind(most):
    cuda = Cuda(mode=os.RTLD_NOW | os.RTLD_DEEPBIND)
    step()
    result("cuMemAlloc of a library with RTLD_DEEPBIND", *fill(PIECE, cuda.allocate, most))


def sizes(most):
    """Sizes just above half a granule, of which the driver takes a whole one."""
    cuda = Cuda()
    step()
    size = 1_153_434
    result(f"cuMemAlloc of {size} bytes", *fill(size, cuda.allocate, most))


def stack(most):
    cuda = Cuda()
    cuda.launch("local", cuda.allocate(4), c_uint(3))
    cuda.synchronize()
    step()
    threads = cuda.attribute(MULTIPROCESSORS) * cuda.attribute(MAX_THREADS)
    size = most // threads // 1024 * 1024
    code = cuda.code("cuCtxSetLimit", LIMIT_STACK, c_size_t(size))
    if code == 0:
        cuda.launch("local", cuda.allocate(4), c_uint(3))
        cuda.synchronize()
    result(f"stacks of {size} bytes", size * threads if code == 0 else 0, code)


class Location(ctypes.Structure):
    _fields_ = [("type", c_int), ("id", c_int)]


class Properties(ctypes.Structure):
    """CUmemAllocationProp of memory of GPU 0 that can be exported by a descriptor."""

    _fields_ = [
        ("type", c_int), ("handles", c_int), ("location", Location), ("windows", c_void_p), ("flags", ctypes.c_ubyte * 8),
    ]


def create(cuda, size):
    handle = c_ulonglong()
    properties = Properties(type=1, handles=1, location=Location(1, 0))
    cuda.call("cuMemCreate", byref(handle), c_size_t(size), byref(properties), c_ulonglong(0))
    return handle


def export(cuda, size, use=lambda descriptor: None):
    """A descriptor of memory whose handle is released, after `use`."""
    handle, descriptor = create(cuda, size), c_int()
    try:
        cuda.call("cuMemExportToShareableHandle", byref(descriptor), handle, 1, c_ulonglong(0))
        use(descriptor.value)
    finally:
        cuda.call("cuMemRelease", handle)
    return descriptor.value


def exported(most):
    """Only descriptors hold the memory. What is charged after they are closed is reported."""
    cuda = Cuda()
    step()
    free, descriptors = cuda.memory()[0], []
    taken, code = fill(PIECE, lambda size: descriptors.append(export(cuda, size)), most)
    result("cuMemCreate, exported, handles released", taken, code)
    for descriptor in descriptors:
        os.close(descriptor)
    step(left=free - cuda.memory()[0])


def imported(most):
    """Only handles that this process has imported from itself hold the memory."""
    cuda = Cuda()
    step()

    def call(descriptor):
        cuda.call("cuMemImportFromShareableHandle", byref(c_ulonglong()), c_void_p(descriptor), 1)

    result("cuMemCreate, imported by its descriptor", *fill(PIECE, lambda size: os.close(export(cuda, size, call)), most))


def inherited(most):
    """Each of three processes fills two fifths, gives descriptors of it to this one, and ends."""
    Cuda()
    step()
    descriptors = []
    for _ in range(3):
        child, end = start("give", most * 2 // 5 // PIECE * PIECE)
        while (found := socket.recv_fds(end, 16, 16))[0]:
            descriptors += found[1]
        os.waitpid(child, 0)
    result("memory exported by processes that have ended", len(descriptors) * PIECE, 0)


def ipc(most):
    """Another process frees its memory as soon as this one has opened it."""
    cuda = Cuda()
    step()
    child, end = start("lend", most)
    taken, code = 0, 0
    while message := end.recv(64, socket.MSG_WAITALL):
        code = code or cuda.code("cuIpcOpenMemHandle_v2", byref(c_uint64()), IpcHandle.from_buffer_copy(message), 1)
        taken += PIECE if code == 0 else 0
        end.send(b"x")
    os.waitpid(child, 0)
    result("memory of another process, opened here and freed there", taken, code)


class IpcHandle(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_char * 64)]


def start(way, size):
    """Another process of the share, and a socket to it."""
    ours, theirs = socket.socketpair()
    with theirs:
        os.set_inheritable(theirs.fileno(), True)
        run = [sys.executable, __file__, way, str(size), str(theirs.fileno())]
        return os.spawnv(os.P_NOWAIT, sys.executable, run), ours


def give(size):
    cuda, end = Cuda(), socket.socket(fileno=int(sys.argv[3]))
    fill(PIECE, lambda piece: socket.send_fds(end, [b"x"], [export(cuda, piece)]), size)


def lend(size):
    cuda, end = Cuda(), socket.socket(fileno=int(sys.argv[3]))

    def take(piece):
        pointer, handle = cuda.allocate(piece), IpcHandle()
        cuda.call("cuIpcGetMemHandle", byref(handle), pointer)
        end.sendall(bytes(handle))
        end.recv(1)
        cuda.free(pointer)

    fill(PIECE, take, size)


def globals_(most):
    cuda = Cuda()
    cuda.function("nothing")
    step()
    text = b".version 6.0\n.target sm_50\n.address_size 64\n.visible .global .align 8 .b8 large[%d];\n"

    def take(size):
        # It may be loaded late.
        pointer, length = c_uint64(), c_size_t()
        cuda.call("cuModuleGetGlobal_v2", byref(pointer), byref(length), cuda.load(text % size), b"large")

    result("__device__ variables of modules", *fill(PIECE, take, most))


def own_copy():
    """The driver by a copy of its file. The process may have no other one."""
    folder = tempfile.mkdtemp()
    name = shutil.copy(glob.glob("/run/octavo/real/libcuda.so*")[0], folder)
    try:
        return Cuda(name)
    finally:
        shutil.rmtree(folder)


def copy(most):
    cuda = own_copy()
    step()
    result("cuMemAlloc of a copy of the driver's file", *fill(PIECE, cuda.allocate, most))


def copy_managed(most):
    cuda = own_copy()
    step()

    def take(size):
        pointer = c_uint64()
        cuda.call("cuMemAllocManaged", byref(pointer), c_size_t(size), 1)
        cuda.call("cuMemsetD8_v2", pointer, 1, c_size_t(size))
        cuda.synchronize()

    result("cuMemAllocManaged of a copy of the driver's file", *fill(PIECE, take, most))


def pageable(most):
    """Memory of the host that kernels use as it is: the driver may move it to the GPU."""
    cuda = Cuda()
    if cuda.attribute(PAGEABLE_ACCESS) != 1:
        return step(lacking="the GPU has no access to pageable memory")
    cuda.function("touch")
    step()
    kept = []

    def take(size):
        kept.append(mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))
        address = ctypes.addressof(ctypes.c_char.from_buffer(kept[-1]))
        cuda.launch("touch", c_uint64(address), c_uint64(size), grid=size // 4096 // 256, block=256)
        cuda.synchronize()

    result("pageable memory that a kernel wrote", *fill(PIECE, take, most))


WAYS = {
    "deepbind": deepbind, "sizes": sizes, "stack": stack, "exported": exported, "imported": imported, "inherited": inherited,
    "give": give, "ipc": ipc, "lend": lend, "globals": globals_, "copy": copy, "copy-managed": copy_managed, "pageable": pageable,
}

if __name__ == "__main__":
    WAYS[sys.argv[1]](int(sys.argv[2]))
