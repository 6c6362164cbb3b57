"""Find where a process listens for TCP connections, from /proc (proc_pid_net(5))."""

from __future__ import annotations

import struct
from contextlib import suppress

from gdbheap.host.descriptors import links

__all__ = ["listening"]

LISTEN = "0A"
# Field numbers in a line of net/tcp: the local address, the state, and the socket's inode.
LOCAL, STATE, INODE = 1, 3, 9
TABLE_BYTES, MAX_DESCRIPTORS = 4 << 20, 100_000
TABLES = ("tcp", "tcp6")
# Wildcard addresses, which stand for all addresses of the machine.
ANY = {"0.0.0.0": "127.0.0.1", "::": "127.0.0.1"}


def listening(folder: str) -> list[tuple[str, int]]:
    """Return the (address, port) pairs at which a process listens, the lowest port first.

    ``folder``: the process's folder in /proc. The list is empty if the kernel does not show the sockets.
    """
    own = _inodes(folder)
    found = set()
    for name in TABLES if own else ():
        with suppress(OSError, ValueError), open(f"{folder}/net/{name}", "rb") as stream:
            for line in stream.read(TABLE_BYTES).decode("ascii", "replace").splitlines()[1:]:
                words = line.split()
                if len(words) > INODE and words[STATE] == LISTEN and words[INODE] in own:
                    found.add(_place(words[LOCAL]))
    return sorted(found, key=lambda place: (place[1], place[0]))


def _inodes(folder: str) -> set[str]:
    """Return the inodes of a process's open sockets."""
    with suppress(OSError):
        opened = (link.partition(":[") for _name, link in links(folder, MAX_DESCRIPTORS))
        return {inode.rstrip("]") for kind, _, inode in opened if kind == "socket"}
    return set()


def _place(text: str) -> tuple[str, int]:
    """Return the (address, port) in a line of net/tcp, such as ("127.0.0.1", 8080).

    The line has the words of the address in the machine's byte order.
    """
    address, port = text.split(":")
    words = [int(address[start : start + 8], 16) for start in range(0, len(address), 8)]
    # Imported here, as few programs listen.
    import socket

    family = socket.AF_INET if len(words) == 1 else socket.AF_INET6
    name = socket.inet_ntop(family, struct.pack(f"={len(words)}I", *words))
    return ANY.get(name, f"[{name}]" if ":" in name else name), int(port, 16)
