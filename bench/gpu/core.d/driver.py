"""The CUDA driver's API by ctypes, and the kernels of the parts.

Kernels are PTX, which the driver compiles. Results of kernels are checked, except on the simulated driver, which runs none.
"""

import ctypes
import os
from ctypes import byref, c_int, c_size_t, c_uint, c_uint64, c_void_p

IS_SIMULATED = bool(os.environ.get("CORE_SIMULATED"))
OUT_OF_MEMORY = 2

PTX = b"""
.version 6.0
.target sm_50
.address_size 64

.global .align 1 .b8 text[8] = {102, 97, 117, 108, 116, 0, 0, 0};
.extern .func __assertfail (.param .b64 what, .param .b64 file, .param .b32 line, .param .b64 name, .param .b64 size);

.visible .entry octavo_nothing()
{
    ret;
}

// x[i] = 3 * x[i] + 1, for each i below count
.visible .entry octavo_map(.param .u64 x, .param .u32 count)
{
    .reg .pred %p;
    .reg .b32 %r<7>;
    .reg .b64 %d<4>;
    ld.param.u64 %d1, [x];
    ld.param.u32 %r1, [count];
    mov.u32 %r2, %ctaid.x;
    mov.u32 %r3, %ntid.x;
    mov.u32 %r4, %tid.x;
    mad.lo.u32 %r5, %r2, %r3, %r4;
    setp.ge.u32 %p, %r5, %r1;
    @%p ret;
    cvta.to.global.u64 %d1, %d1;
    mul.wide.u32 %d2, %r5, 4;
    add.u64 %d3, %d1, %d2;
    ld.global.u32 %r6, [%d3];
    mad.lo.u32 %r6, %r6, 3, 1;
    st.global.u32 [%d3], %r6;
    ret;
}

// The same chain of dependent operations in all threads; the first one writes the result.
.visible .entry octavo_work(.param .u64 result, .param .u32 count)
{
    .reg .pred %p<3>;
    .reg .b32 %r<6>;
    .reg .b64 %d<2>;
    ld.param.u64 %d1, [result];
    ld.param.u32 %r1, [count];
    mov.u32 %r2, 1;
again:
    mad.lo.u32 %r2, %r2, 1664525, 1013904223;
    sub.u32 %r1, %r1, 1;
    setp.ne.u32 %p1, %r1, 0;
    @%p1 bra again;
    mov.u32 %r3, %ctaid.x;
    mov.u32 %r4, %tid.x;
    or.b32 %r5, %r3, %r4;
    setp.ne.u32 %p2, %r5, 0;
    @%p2 ret;
    cvta.to.global.u64 %d1, %d1;
    st.global.u32 [%d1], %r2;
    ret;
}

// Runs for that many nanoseconds.
.visible .entry octavo_spin(.param .u64 time)
{
    .reg .pred %p;
    .reg .b64 %d<5>;
    ld.param.u64 %d1, [time];
    mov.u64 %d2, %globaltimer;
again:
    mov.u64 %d3, %globaltimer;
    sub.u64 %d4, %d3, %d2;
    setp.lt.u64 %p, %d4, %d1;
    @%p bra again;
    ret;
}

// Writes to an address, which may be any.
.visible .entry octavo_poke(.param .u64 address)
{
    .reg .b32 %r<2>;
    .reg .b64 %d<2>;
    ld.param.u64 %d1, [address];
    mov.u32 %r1, 7;
    st.u32 [%d1], %r1;
    ret;
}

// Writes a byte of each page of 4 KiB; a thread each.
.visible .entry octavo_touch(.param .u64 address, .param .u64 size)
{
    .reg .pred %p;
    .reg .b32 %r<5>;
    .reg .b64 %d<5>;
    ld.param.u64 %d1, [address];
    ld.param.u64 %d2, [size];
    mov.u32 %r1, %ctaid.x;
    mov.u32 %r2, %ntid.x;
    mov.u32 %r3, %tid.x;
    mad.lo.u32 %r4, %r1, %r2, %r3;
    mul.wide.u32 %d3, %r4, 4096;
    setp.ge.u64 %p, %d3, %d2;
    @%p ret;
    add.u64 %d4, %d1, %d3;
    st.u8 [%d4], %r4;
    ret;
}

.visible .entry octavo_assert()
{
    .reg .b64 %d<4>;
    mov.u64 %d1, text;
    cvta.global.u64 %d2, %d1;
    mov.u64 %d3, 1;
    {
        .param .b64 what;
        .param .b64 file;
        .param .b32 line;
        .param .b64 name;
        .param .b64 size;
        st.param.b64 [what], %d2;
        st.param.b64 [file], %d2;
        st.param.b32 [line], 1;
        st.param.b64 [name], %d2;
        st.param.b64 [size], %d3;
        call.uni __assertfail, (what, file, line, name, size);
    }
    ret;
}

.visible .entry octavo_trap()
{
    trap;
    ret;
}

// Has 1 KiB of local memory in each thread, at an index that is known only when it runs.
.visible .entry octavo_local(.param .u64 result, .param .u32 index)
{
    .local .align 4 .b8 own[1024];
    .reg .b32 %r<3>;
    .reg .b64 %d<5>;
    ld.param.u64 %d1, [result];
    ld.param.u32 %r1, [index];
    mov.u64 %d2, own;
    mul.wide.u32 %d3, %r1, 4;
    add.u64 %d4, %d2, %d3;
    st.local.u32 [%d4], %r1;
    ld.local.u32 %r2, [%d2];
    cvta.to.global.u64 %d1, %d1;
    st.global.u32 [%d1], %r2;
    ret;
}
"""


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
        self.module, self.functions = None, {}

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
            self.module = self.module or self.load(PTX)
            found = c_void_p()
            self.call("cuModuleGetFunction", byref(found), self.module, f"octavo_{name}".encode())
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
