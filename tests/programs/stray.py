"""Attach a tree of C's to one Python object, at addresses that equal numbers in static data.

stray.py KIND NUMBER BYTES SEED: the break is moved so that the heap grows over NUMBER, if that is not 0. At a line on
standard input the tree is built, and standard error has ``{"grown": ...}``, malloc's own count of the allocated bytes.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import random
import sqlite3
import sys
import xml.parsers.expat
from typing import Any, Callable

libc = ctypes.CDLL(None)
libc.sbrk.restype, libc.sbrk.argtypes = ctypes.c_size_t, [ctypes.c_ssize_t]


class Info(ctypes.Structure):
    """The C structure mallinfo2."""

    _fields_ = [(name, ctypes.c_size_t) for name in "arena ordblks smblks hblks hblkhd usm fsm uord ford keep".split()]


def in_use() -> int:
    """Return the bytes that glibc has allocated."""
    libc.mallinfo2.restype = Info
    info = libc.mallinfo2()
    return int(info.uord + info.hblkhd)


def move(start: int) -> None:
    """Move the break up to where the heap is to grow. When malloc meets it, malloc's own figures jump."""
    here = libc.sbrk(0)
    if here > start:
        # The kernel chooses the start of the heap.
        os.execv(sys.executable, [sys.executable, *sys.argv])
    libc.sbrk((start - here) & ~4095)
    libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
    here = libc.sbrk(0)
    blocks = []
    while libc.sbrk(0) == here:
        blocks.append(libc.malloc(64 << 10))
    for block in blocks:
        libc.free(ctypes.c_void_p(block))


def database(size: int, rng: random.Random) -> Any:
    """Return a database in memory whose pages have that total size."""
    made = sqlite3.connect(":memory:")
    made.execute("create table t(a, b)")
    rows = ((i, os.urandom(100).hex()) for i in range(size // 230))
    made.executemany("insert into t values(?, ?)", rows)
    made.execute("create index i on t(b)" if rng.random() < 0.3 else "select 1")
    return made


def document(size: int, rng: random.Random) -> Any:
    """Return the root of a tree of libxml2's, without other references."""
    import lxml.etree

    return lxml.etree.fromstring("<a>" + "<b>text</b>" * (size // 250) + "</a>")


def parser(size: int, rng: random.Random) -> Any:
    """Return a parser in the middle of a deep document: it keeps a chain of open elements."""
    made = xml.parsers.expat.ParserCreate()
    made.Parse("<a>" * (size // 160))
    return made


KINDS: dict[str, Callable[[int, random.Random], Any]] = {"sqlite3": database, "lxml": document, "expat": parser}


def main() -> None:
    """Move, build, drop."""
    kind, number, size, rng = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), random.Random(int(sys.argv[4]))
    for package in ("numpy", "lxml.etree"):
        try:
            __import__(package)
        except ImportError:
            pass
    KINDS[kind](20000, rng)
    if number:
        move(number - rng.randrange(size // 8, size * 7 // 8))
    gc.collect()
    os.read(0, 1)
    before = in_use()
    held = KINDS[kind](size, rng)
    gc.collect()
    assert not number or libc.sbrk(0) > number
    sys.stderr.write(json.dumps({"grown": in_use() - before}) + "\n")
    sys.stderr.flush()
    os.read(0, 1)
    del held


if __name__ == "__main__":
    main()
