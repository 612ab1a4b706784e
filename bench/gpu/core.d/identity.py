"""E0: does cuGetProcAddress return the same function for a name as dlsym does for one of its versions?

The guard knows the driver's functions by their addresses, so each name that it hooks has to be found that way.
Prints a line of JSON; fails if a hooked name is not.

    identity.py HOOKS    a file with the hooked names, a line each
"""

import ctypes
import json
import os
import re
import struct
import sys


def exports(path):
    """Names of the functions that an ELF64 shared object exports."""
    with open(path, "rb") as file:
        data = file.read()
    sections, size, count = (struct.unpack_from(f, data, o)[0] for f, o in (("<Q", 40), ("<H", 58), ("<H", 60)))
    headers = [struct.unpack_from("<IIQQQQIIQQ", data, sections + i * size) for i in range(count)]
    names = set()
    for header in headers:
        if header[1] != 11:  # SHT_DYNSYM
            continue
        strings = headers[header[6]][4]
        for at in range(header[4], header[4] + header[5], 24):
            name, info, _, section = struct.unpack_from("<IBBH", data, at)
            if section and info & 15 in (2, 10):
                names.add(data[strings + name : data.index(b"\0", strings + name)].decode())
    return names


def real_path():
    """Path of the library that the dynamic linker finds."""
    with open("/proc/self/maps") as maps:
        return next(line.split()[-1] for line in maps if re.search(r"/libcuda\.so", line))


def main():
    hooks = set(open(sys.argv[1]).read().split())
    cuda = ctypes.CDLL("libcuda.so.1", mode=os.RTLD_NOW)
    assert cuda.cuInit(0) == 0, "cuInit failed"
    version = ctypes.c_int()
    cuda.cuDriverGetVersion(ctypes.byref(version))
    names = {name for name in exports(real_path()) if name.startswith("cu")}
    address = {name: ctypes.cast(getattr(cuda, name), ctypes.c_void_p).value for name in names}
    # Several names may have one function.
    by_address = {}
    for name, value in address.items():
        by_address.setdefault(value, set()).add(name)
    base = lambda name: re.sub(r"(_v\d+)?(_pt[sd]z)?$", "", name)
    missing, unknown, asked = set(), [], 0
    found_hooks = set()
    for name in sorted({base(name) for name in names}):
        for wanted in (version.value, 12000, 11000):
            for flags in (0, 1, 2):
                pointer, status = ctypes.c_void_p(), ctypes.c_int()
                code = cuda.cuGetProcAddress_v2(
                    name.encode(), ctypes.byref(pointer), wanted, ctypes.c_uint64(flags), ctypes.byref(status)
                )
                asked += 1
                if code or not pointer.value:
                    missing.add(name)
                elif pointer.value in by_address:
                    found_hooks |= by_address[pointer.value]
                else:
                    unknown.append([name, wanted, flags])
    assert asked > len(missing) * 9, "cuGetProcAddress knows no name"
    hooked_bases = {base(name) for name in hooks & names}
    broken = sorted({name for name, _, _ in unknown if name in hooked_bases})
    print(json.dumps({
        "experiment": "E0", "driver": version.value, "exports": len(names), "asked": asked,
        "hooks_exported": len(hooks & names), "hooks_met": len(found_hooks & hooks),
        "hooks_without_export": sorted(name for name in hooks - names if name.startswith("cu"))[:40],
        "not_an_export": len(unknown), "not_an_export_of_hooks": [one for one in unknown if one[0] in hooked_bases][:40],
        "identity_broken_for_hooks": broken,
        "exports_not_resolvable": len(missing), "exports_unhooked_demanding": sorted(
            name for name in names - hooks if re.search(r"Alloc|Launch|Create.*Array|MemCreate", name))[:60],
    }))
    sys.exit(1 if broken else 0)


main()
