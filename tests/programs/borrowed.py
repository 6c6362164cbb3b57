"""Hold objects whose structures are a library's: borrowed.py KIND COUNT SEED. At a line on standard input drop them."""

from __future__ import annotations

import bz2
import gc
import hashlib
import lzma
import os
import random
import sqlite3
import ssl
import struct
import sys
import xml.etree.ElementTree as ElementTree
import zlib
from typing import Any, Callable


def connection(rng: random.Random) -> Any:
    """Return a database in memory with a few pages."""
    made = sqlite3.connect(":memory:")
    made.execute("create table t(a, b)")
    made.executemany("insert into t values(?, ?)", ((i, "b" * 50) for i in range(rng.randrange(200, 2000))))
    return made


def context(rng: random.Random) -> Any:
    """Return a TLS context with its own ciphers."""
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    made.set_ciphers("HIGH" if rng.random() < 0.5 else "DEFAULT")
    return made


def image(rng: random.Random) -> Any:
    """Return an image of some colour."""
    import PIL.Image

    return PIL.Image.new("RGB", (rng.randrange(20, 300), rng.randrange(20, 300)), rng.randrange(1 << 24))


def document(rng: random.Random) -> Any:
    """Return a tree of libxml2's."""
    import lxml.etree

    return lxml.etree.fromstring("<a>" + "<b c='d'>some text</b>" * rng.randrange(20, 500) + "</a>")


def compressor(rng: random.Random) -> Any:
    """Return a compressor in the middle of its work."""
    made = zlib.compressobj()
    made.compress(rng.randbytes(5000))
    return made


def packer(rng: random.Random) -> Any:
    """Return a compressor of bzip2's in the middle of its work."""
    made = bz2.BZ2Compressor(rng.randrange(1, 3))
    made.compress(rng.randbytes(5000))
    return made


def extractor(rng: random.Random) -> Any:
    """Return a decompressor that waits for more."""
    made = lzma.LZMADecompressor()
    made.decompress(lzma.compress(rng.randbytes(9000), preset=0)[:3000])
    return made


KINDS: dict[str, Callable[[random.Random], Any]] = {
    "sqlite3": connection,
    "ssl": context,
    "zlib": compressor,
    "bz2": packer,
    "lzma": extractor,
    "hashlib": lambda rng: hashlib.sha512(rng.randbytes(100)),
    "struct": lambda rng: struct.Struct("<" + "QI4s" * rng.randrange(20, 200)),
    "elements": lambda rng: ElementTree.fromstring("<a>" + "<b/>" * rng.randrange(5, 60) + "</a>"),
    "PIL": image,
    "lxml": document,
}


def main() -> None:
    """Make and drop a few objects, so that one-time memory exists. Then make the others and hold them."""
    kind, count, rng = KINDS[sys.argv[1]], int(sys.argv[2]), random.Random(int(sys.argv[3]))
    held = [kind(rng) for _ in range(5)]
    held.clear()
    held += [kind(rng) for _ in range(count)]
    gc.collect()
    gc.disable()
    os.read(0, 1)
    held.clear()
    gc.collect()
    os.read(0, 1)


if __name__ == "__main__":
    main()
