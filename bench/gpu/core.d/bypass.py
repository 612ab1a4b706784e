"""E2: bypasses of a preloaded library, tried in a share.

    bypass.py deepbind|copy LIMIT_BYTES

`deepbind` opens libcuda.so.1 with RTLD_DEEPBIND, so that its own symbols come first. `copy` opens a copy of the
driver's file, which only the watchdog can stop. Prints a line of JSON that says whether more than the limit was
allocated at once.
"""

import ctypes
import glob
import json
import os
import shutil
import sys
import tempfile

way, limit = sys.argv[1], int(sys.argv[2])
name = "libcuda.so.1"
if way == "copy":
    folder = tempfile.mkdtemp()
    name = shutil.copy(glob.glob("/run/octavo/real/libcuda.so*")[0], folder)
cuda = ctypes.CDLL(name, mode=os.RTLD_NOW | (os.RTLD_DEEPBIND if way == "deepbind" else 0))
if way == "copy":
    shutil.rmtree(folder)


def done(code, call):
    assert code == 0, f"{call}: {code}"


done(cuda.cuInit(0), "cuInit")
context = ctypes.c_void_p()
done(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0), "cuDevicePrimaryCtxRetain")
done(cuda.cuCtxSetCurrent(context), "cuCtxSetCurrent")
pointer = ctypes.c_uint64()
code = cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(limit + (1 << 30)))
if code == 0:
    done(cuda.cuMemFree_v2(pointer), "cuMemFree")
print(json.dumps({"way": way, "code": code, "passes": code == 0}))
