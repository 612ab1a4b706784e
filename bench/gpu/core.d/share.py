"""A program in a standalone share of the GPU, and the programs of these parts."""

import os
import sys

GIB = 1 << 30
# The guard's charge for a context before an agent has measured it. A standalone share has none.
CONTEXT_CHARGE = 256 << 20


def command(name, size, *flags):
    """The beginning of a command that runs in the share of that name, of `size` bytes, with more flags of `octavo share run`."""
    return [
        built("octavo"), "share", "run", "--memory", str(size), "--name", name, "--driver-root", os.environ["CORE_DRIVER_ROOT"],
        "--sys-root", os.environ["CORE_SYS_ROOT"], *flags, "--",
    ]


def built(name):
    return os.path.join(os.environ["CORE_FILES"], name)


def program(name, *arguments):
    """A command that runs a Python program of this folder."""
    return [sys.executable, os.path.join(os.path.dirname(os.path.abspath(__file__)), name), *map(str, arguments)]
