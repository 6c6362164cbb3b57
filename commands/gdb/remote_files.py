"""Read files of a machine on which a server runs, with the remote protocol's host I/O packets.

gdb's manual describes these packets in the appendix "Remote Serial Protocol", section "Host I/O Packets". The answer to
``vFile:open:2f70726f63,0,0`` is ``F5`` (a descriptor). The answer to ``vFile:pread:5,1000,0`` is ``F1a;`` and 26 bytes
of data, in which ``}`` escapes the next byte. An error is ``F-1,2`` (errno). The caller passes the function that sends
packets; this module does not import gdb."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator

__all__ = ["RemoteFiles"]

CHUNK = 0x2000
ESCAPE = 0x7D
FLIP = 0x20


class RemoteFiles:
    """Reads files of a server. ``send``: a function that sends one packet and returns the answer."""

    def __init__(self, send: Callable[[bytes], bytes]) -> None:
        self._send = send

    def read(self, path: str, limit: int) -> bytes:
        """Return the first ``limit`` bytes of a file. Raises OSError."""
        with _RemoteDescriptor(self, path) as descriptor:
            return b"".join(self._parts(descriptor, 0, limit))

    def read_ranges(self, path: str, ranges: list[tuple[int, int]]) -> list[bytes]:
        """Return the bytes of each range (offset, size). A range beyond the end of the file has fewer bytes. Raises
        OSError."""
        with _RemoteDescriptor(self, path) as descriptor:
            return [b"".join(self._parts(descriptor, offset, size)) for offset, size in ranges]

    def open(self, path: str) -> int:
        """Open a file for reading and return the server's descriptor. Raises OSError."""
        return self.call(b"open:%s,0,0" % os.fsencode(path).hex().encode(), path)[0]

    def link(self, path: str) -> str:
        """Return the target of a link. Raises OSError."""
        return os.fsdecode(self.call(b"readlink:%s" % os.fsencode(path).hex().encode(), path)[1])

    def close(self, descriptor: int) -> None:
        """Close a descriptor of the server. Raises OSError."""
        self.call(b"close:%x" % descriptor, "")

    def _parts(self, descriptor: int, offset: int, size: int) -> Iterator[bytes]:
        end = offset + size
        while offset < end:
            data = self.call(b"pread:%x,%x,%x" % (descriptor, min(CHUNK, end - offset), offset), "")[1]
            if not data:
                return
            yield data
            offset += len(data)

    def call(self, words: bytes, path: str) -> tuple[int, bytes]:
        """Send a request ``vFile:words``. Return the number and the data in its answer. Raises OSError if the answer is
        an error or damaged; ``path``: the file that the error names.
        """
        answer = self._send(b"vFile:" + words)
        head, _, data = answer.partition(b";")
        if not head.startswith(b"F"):
            raise OSError(0, "the server does not offer its files", path)
        numbers = head[1:].split(b",")
        try:
            result = int(numbers[0], 16)
            error = int(numbers[1], 16) if len(numbers) > 1 else 0
        except ValueError:
            raise OSError(0, "the server's answer is damaged", path) from None
        if result < 0:
            known = error if error in errno.errorcode else errno.EIO
            raise OSError(known, os.strerror(known), path)
        return result, _unescaped(data, result)


class _RemoteDescriptor:
    """A descriptor on the server that is closed at the end of the block."""

    def __init__(self, files: RemoteFiles, path: str) -> None:
        self.files = files
        self.path = path

    def __enter__(self) -> int:
        self.descriptor = self.files.open(self.path)
        return self.descriptor

    def __exit__(self, *_: object) -> None:
        self.files.close(self.descriptor)


def _unescaped(data: bytes, size: int) -> bytes:
    """Return ``data`` without escapes. ``size``: the length of the result; if ``data`` has this length, gdb has already
    removed the escapes."""
    if len(data) == size or ESCAPE not in data:
        return data
    found = bytearray()
    flip = 0
    for byte in data:
        if byte == ESCAPE and not flip:
            flip = FLIP
            continue
        found.append(byte ^ flip)
        flip = 0
    return bytes(found)
