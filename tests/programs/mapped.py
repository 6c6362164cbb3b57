"""Map memory in each way, write to some, print (variable, address, bytes, shared) of each mapping, and wait."""

import ctypes
import json
import mmap
import os
import random
import sys
import tempfile

PAGE = mmap.PAGESIZE
rng = random.Random(int(sys.argv[1]))
libc = ctypes.CDLL(None, use_errno=True)
libc.mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)


def size():
    """Return whole pages and a part of one, so that the last page has a rest."""
    return rng.randrange(600, 900) * PAGE + rng.randrange(1, PAGE)


def address_of(mapped):
    """Return the address of the memory, which mmap objects do not have."""
    return ctypes.addressof(ctypes.c_char.from_buffer(mapped))


def mapping(flags, length):
    """Return anonymous memory with the first half written."""
    found = mmap.mmap(-1, length, flags=flags | mmap.MAP_ANONYMOUS)
    found[: length // 2] = b"x" * (length // 2)
    return found


def of_file(length, access):
    """Return a mapped file with the first half written."""
    with tempfile.TemporaryFile() as file:
        file.truncate(length)
        found = mmap.mmap(file.fileno(), length, access=access)
    found[: length // 2] = b"y" * (length // 2)
    return found


sizes = {name: size() for name in ("shared", "private", "parted", "copied", "written")}
shared = mapping(mmap.MAP_SHARED, sizes["shared"])
private = [mapping(mmap.MAP_PRIVATE, sizes["private"])]
# The kernel divides a mapping into three if a part of it differs.
parted = {"of three": mapping(mmap.MAP_PRIVATE, sizes["parted"])}
libc.mprotect(address_of(parted["of three"]) + 100 * PAGE, 50 * PAGE, mmap.PROT_READ)
copied = of_file(sizes["copied"], mmap.ACCESS_COPY)
written = of_file(sizes["written"], mmap.ACCESS_WRITE)


def told():
    """Return (variable, address, bytes, shared) of each mapping."""
    held = {"shared": shared, "private": private[0], "parted": parted["of three"], "copied": copied, "written": written}
    return [(name, address_of(one), sizes[name], name in ("shared", "written")) for name, one in held.items()]


sys.stderr.write(json.dumps(told()) + "\n")
sys.stderr.flush()
os.read(0, 1)
