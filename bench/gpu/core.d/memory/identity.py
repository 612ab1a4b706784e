"""E0: does cuGetProcAddress return the same function for a name as dlsym does for one of its versions?

The guard knows the driver's functions by their addresses, so each name that it hooks has to be found that way. In a share no lookup of
such a name may lead to the driver's own function.

    identity.py outside|inside      without a share, or in one
"""

import ctypes
import os
import re
import subprocess
import sys

import elf
from figures import at_least, check, exactly, raw
from share import built

VERSIONS = (12000, 11000)
FLAGS = (0, 1, 2)


def base(name):
    return re.sub(r"(_v\d+)?(_pt[sd]z)?$", "", name)


def lookups(cuda, names):
    """What cuGetProcAddress returns for each name, version and flag."""
    version = ctypes.c_int()
    cuda.cuDriverGetVersion(ctypes.byref(version))
    for name in sorted({base(name) for name in names}):
        for wanted in (version.value, *VERSIONS):
            for flags in FLAGS:
                pointer, status = ctypes.c_void_p(), ctypes.c_int()
                code = cuda.cuGetProcAddress_v2(
                    name.encode(), ctypes.byref(pointer), wanted, ctypes.c_uint64(flags), ctypes.byref(status)
                )
                yield name, wanted, flags, 0 if code else pointer.value or 0


def outside(cuda, hooks):
    path, _ = elf.mapped(r"/libcuda\.so")
    names = {name for name in elf.functions(path) if name.startswith("cu")}
    # Several names may have one function.
    by_address = {}
    for name in names:
        by_address.setdefault(ctypes.cast(getattr(cuda, name), ctypes.c_void_p).value, set()).add(name)
    hooked_bases = {base(name) for name in hooks & names}
    found, unknown, asked, missing = set(), [], 0, 0
    for name, version, flags, address in lookups(cuda, names):
        asked += 1
        missing += not address
        if address in by_address:
            found |= by_address[address]
        elif address:
            unknown.append([name, version, flags])
    broken = sorted({name for name, _, _ in unknown if name in hooked_bases})
    unhooked = sorted(name for name in names - hooks if re.search(r"Alloc|Launch|Create.*Array|MemCreate", name))
    check("functions that the driver exports", len(names))
    check("of them hooked", len(hooks & names))
    at_least("lookups with a result, by cuGetProcAddress", asked - missing, 1)
    exactly(f"hooked names whose addresses differ {' '.join(broken)}".rstrip(), len(broken), 0)
    check("allocation-like names without a hook", len(unhooked))
    raw(
        hooks_found=len(found & hooks), hooks_without_export=sorted(name for name in hooks - names if name.startswith("cu")),
        not_an_export=unknown, without_a_hook=unhooked,
    )


def inside(cuda, hooks):
    path, start = elf.mapped(r"^/run/octavo/real/libcuda\.so")
    values = elf.functions(path)
    by_address = {}
    for name, value in values.items():
        by_address.setdefault(start + value, set()).add(name)
    ranges = [(low, high) for low, high, _, mapped in elf.mappings() if mapped == path]
    is_real = lambda address: any(low <= address < high for low, high in ranges)
    hooked = sorted(name for name in hooks & values.keys() if name.startswith("cu"))
    by_symbol = [name for name in hooked if is_real(ctypes.cast(getattr(cuda, name), ctypes.c_void_p).value)]
    by_lookup, hidden = set(), set()
    for name, version, flags, address in lookups(cuda, values.keys()):
        if is_real(address):
            by_lookup |= by_address.get(address, set()) & hooks
            if address not in by_address and base(name) in map(base, hooked):
                hidden.add(name)
    for what, names in [("dlsym", by_symbol), ("cuGetProcAddress", by_lookup), ("cuGetProcAddress, no export", hidden)]:
        exactly(f"in a share: hooked names past the guard, by {what} {' '.join(sorted(names)[:5])}".rstrip(), len(names), 0)
    check("in a share: hooked names looked up", len(hooked))


if __name__ == "__main__":
    hooks = set(subprocess.run([built("octavo"), "share", "names"], check=True, stdout=subprocess.PIPE, text=True).stdout.split())
    cuda = ctypes.CDLL("libcuda.so.1", mode=os.RTLD_NOW)
    assert cuda.cuInit(0) == 0, "cuInit failed"
    {"outside": outside, "inside": inside}[sys.argv[1]](cuda, hooks)
