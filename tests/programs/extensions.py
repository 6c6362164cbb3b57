"""Threads that hold objects of many extension modules: extensions.py SEED THREADS. Then wait for standard input."""

from __future__ import annotations

import array
import bz2
import collections
import ctypes
import decimal
import hashlib
import io
import lzma
import os
import pickle
import random
import re
import select
import socket
import sqlite3
import ssl
import struct
import sys
import tempfile
import threading
import xml.etree.ElementTree as ElementTree
import zlib
from typing import Any


def database(rng: random.Random) -> list[Any]:
    """Return a connection with rows, and a cursor in the middle of them."""
    connection = sqlite3.connect(":memory:", check_same_thread=False)
    connection.execute("create table t(a, b)")
    connection.executemany("insert into t values(?, ?)", ((i, str(i) * 10) for i in range(rng.randrange(2000))))
    cursor = connection.execute("select * from t")
    cursor.fetchone()
    return [connection, cursor]


def handshake() -> list[Any]:
    """Return a TLS connection that has sent its hello."""
    context = ssl.create_default_context()
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    connection = context.wrap_bio(incoming, outgoing, server_hostname="localhost")
    try:
        connection.do_handshake()
    except ssl.SSLWantReadError:
        pass
    return [context, connection, incoming, outgoing]


def compressors(rng: random.Random) -> list[Any]:
    """Return compressors in the middle of their work."""
    packed = zlib.compress(rng.randbytes(10_000))
    decompressor = zlib.decompressobj()
    decompressor.decompress(packed, 100)
    found = [zlib.compressobj(), bz2.BZ2Compressor(), lzma.LZMACompressor(preset=0)]
    for compressor in found:
        compressor.compress(rng.randbytes(5000))  # type: ignore[attr-defined]
    return [*found, decompressor]


def files() -> list[Any]:
    """Return files and buffers with pending bytes, and sockets."""
    text = tempfile.TemporaryFile("w+")
    text.write("pending" * 100)
    left, right = socket.socketpair()
    poll = select.poll()
    poll.register(left)
    written = io.StringIO()
    written.write("x" * 5000)
    return [text, left, right, poll, written, io.BytesIO(bytes(700)), io.BufferedReader(io.BytesIO(b"x"))]  # type: ignore[arg-type]


def mixed(rng: random.Random) -> list[Any]:
    """Return objects of other modules written in C."""
    size = rng.randrange
    tree = ElementTree.fromstring("<a>" + "<b c='d'>text</b>" * size(500) + "</a>")
    found: list[Any] = [tree, pickle.Pickler(io.BytesIO()), struct.Struct("<QQ4s"), hashlib.blake2b()]
    found += [hashlib.sha256(bytes(size(100))) for _ in range(20)]
    found += [re.compile(f"a(b|c)*{size(1000)}") for _ in range(10)]
    found += [collections.deque(range(size(1000))) for _ in range(20)]
    found += [collections.OrderedDict.fromkeys(range(size(100))) for _ in range(20)]
    found += [array.array("d", bytes(8 * size(1000))) for _ in range(20)]
    found += [decimal.Decimal(2) ** size(400) for _ in range(20)]
    return found + [(ctypes.c_char * size(1000))() for _ in range(20)]


def work(seed: int, held: list[Any], ready: threading.Barrier) -> None:
    """Make objects, keep them, stay."""
    rng = random.Random(seed)
    held.append([database(rng), handshake(), compressors(rng), files(), mixed(rng)])
    ready.wait()
    threading.Event().wait()


def main() -> None:
    """Start the threads; when all hold theirs, wait."""
    rng = random.Random(int(sys.argv[1]))
    count = int(sys.argv[2])
    held: list[Any] = []
    ready = threading.Barrier(count + 1)
    for _ in range(count):
        threading.Thread(target=work, args=(rng.getrandbits(32), held, ready), daemon=True).start()
    ready.wait()
    os.read(0, 1)


if __name__ == "__main__":
    main()
