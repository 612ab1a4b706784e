"""Functions of a loaded library, as its file and the process's mappings have them: no hook stands between."""

import re
import struct


def functions(path):
    """Names and values of the functions that an ELF64 shared object exports."""
    with open(path, "rb") as file:
        data = file.read()
    sections, size, count = (struct.unpack_from(f, data, o)[0] for f, o in (("<Q", 40), ("<H", 58), ("<H", 60)))
    headers = [struct.unpack_from("<IIQQQQIIQQ", data, sections + i * size) for i in range(count)]
    found = {}
    for header in headers:
        if header[1] != 11:  # SHT_DYNSYM
            continue
        strings = headers[header[6]][4]
        for at in range(header[4], header[4] + header[5], 24):
            name, info, _, section, value = struct.unpack_from("<IBBHQ", data, at)
            if section and info & 15 in (2, 10):
                found[data[strings + name : data.index(b"\0", strings + name)].decode()] = value
    return found


def mappings():
    """Start, end, offset in the file and path of each mapped file."""
    with open("/proc/self/maps") as maps:
        for line in maps:
            words = line.split(maxsplit=5)
            if len(words) == 6 and words[5].startswith("/"):
                start, end = (int(word, 16) for word in words[0].split("-"))
                yield start, end, int(words[2], 16), words[5].strip()


def mapped(pattern):
    """Path of the first mapped file that matches, and where its first byte is; None if there is none."""
    for start, _, offset, path in mappings():
        if offset == 0 and re.search(pattern, path):
            return path, start
    return None


def file_at(address):
    """Path of the file that is mapped at an address."""
    return next((path for start, end, _, path in mappings() if start <= address < end), None)
