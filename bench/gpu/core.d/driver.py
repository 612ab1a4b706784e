"""The CUDA driver's API by ctypes. Results of kernels are checked, except on the simulated driver, which runs none."""

import ctypes
import os
from ctypes import byref, c_int, c_size_t, c_uint, c_uint64, c_void_p

import kernels

IS_SIMULATED = bool(os.environ.get("CORE_SIMULATED"))
OUT_OF_MEMORY = 2


class Refused(Exception):
    """A call that ended with another code than success."""

    def __init__(self, call, code):
        super().__init__(f"{call}: {code}")
        self.code = code


class Cuda:
    """The driver with GPU 0's primary context, current in this thread."""

    def __init__(self, library="libcuda.so.1", mode=os.RTLD_NOW):
        self.library = ctypes.CDLL(library, mode=mode)
        self.call("cuInit", 0)
        self.context = c_void_p()
        self.call("cuDevicePrimaryCtxRetain", byref(self.context), 0)
        self.call("cuCtxSetCurrent", self.context)
        self.modules, self.functions = {}, {}

    def code(self, name, *arguments):
        return getattr(self.library, name)(*arguments)

    def call(self, name, *arguments):
        code = self.code(name, *arguments)
        if code != 0:
            raise Refused(name, code)

    def has(self, name):
        return hasattr(self.library, name)

    def attribute(self, number):
        value = c_int()
        self.call("cuDeviceGetAttribute", byref(value), number, 0)
        return value.value

    def memory(self):
        """Free and total bytes."""
        free, total = c_size_t(), c_size_t()
        self.call("cuMemGetInfo_v2", byref(free), byref(total))
        return free.value, total.value

    def allocate(self, size):
        pointer = c_uint64()
        self.call("cuMemAlloc_v2", byref(pointer), c_size_t(size))
        return pointer

    def free(self, pointer):
        self.call("cuMemFree_v2", pointer)

    def synchronize(self):
        self.call("cuCtxSynchronize")

    def load(self, image):
        module = c_void_p()
        self.call("cuModuleLoadData", byref(module), ctypes.c_char_p(image))
        return module

    def function(self, name):
        if name not in self.functions:
            name_in_module, found = f"octavo_{name}".encode(), c_void_p()
            image = kernels.PLAIN if name_in_module in kernels.PLAIN else kernels.FAULTS
            if image not in self.modules:
                self.modules[image] = self.load(image)
            self.call("cuModuleGetFunction", byref(found), self.modules[image], name_in_module)
            self.functions[name] = found
        return self.functions[name]

    def launch(self, name, *arguments, grid=1, block=1, stream=None, call="cuLaunchKernel"):
        self.call(call, self.function(name), *map(c_uint, (grid, 1, 1, block, 1, 1, 0)), stream, params(*arguments), None)

    def to_device(self, pointer, values):
        self.call("cuMemcpyHtoD_v2", pointer, values, c_size_t(ctypes.sizeof(values)))

    def to_host(self, values, pointer):
        self.call("cuMemcpyDtoH_v2", values, pointer, c_size_t(ctypes.sizeof(values)))

    def check_map(self, count=1 << 16, call="cuLaunchKernel"):
        """Runs a kernel over an array and compares the result with the host's."""
        values = (c_uint * count)(*range(count))
        pointer = self.allocate(ctypes.sizeof(values))
        self.to_device(pointer, values)
        self.launch("map", pointer, c_uint(count), grid=(count + 255) // 256, block=256, call=call)
        self.synchronize()
        self.to_host(values, pointer)
        self.free(pointer)
        assert IS_SIMULATED or all(value == 3 * i + 1 for i, value in enumerate(values)), "a kernel's result is wrong"

    def check_work(self):
        """Runs the chain of operations and compares the result with the host's."""
        expected, count = 1, 1000
        for _ in range(count):
            expected = (expected * 1664525 + 1013904223) % 2**32
        found, result = (c_uint * 1)(), self.allocate(4)
        self.launch("work", result, c_uint(count), grid=4, block=64)
        self.synchronize()
        self.to_host(found, result)
        self.free(result)
        assert IS_SIMULATED or found[0] == expected, "a kernel's result is wrong"


def params(*arguments):
    """Parameters of a kernel. They must live until the launch has returned."""
    return (c_void_p * max(1, len(arguments)))(*(ctypes.cast(byref(one), c_void_p) for one in arguments)) if arguments else None
