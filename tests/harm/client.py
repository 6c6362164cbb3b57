"""A client that verifies every reply: ``client.py KIND PORT TABLE``; KIND is http, redis or postgres. Loopback only.

Each reply is compared with the expected one. A broken connection is a wrong reply, and opened anew.
"""

from __future__ import annotations

import http.client
import random
import socket
import struct
import sys
import time
import zlib
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:] = [str(HERE.parent), *(entry for entry in sys.path if Path(entry or ".").resolve() != HERE)]

from harm.table import Line, Table  # noqa: E402

HOST = "127.0.0.1"
NAP = 0.01
SECONDS = 60


class Http:
    """The server of tests/programs/server.py: the path determines the checksum of the body."""

    def __init__(self, port: int) -> None:
        """Connect."""
        self.connection = http.client.HTTPConnection(HOST, port, timeout=SECONDS)

    def is_right(self, number: int) -> bool:
        """Return whether the reply to one request is right."""
        body = f"{number}".encode() * 100
        self.connection.request("POST", f"/{number}", body)
        answer = self.connection.getresponse()
        return answer.status == 200 and answer.read() == b"%d %d" % (zlib.crc32(body), number)


class Redis:
    """Redis' own protocol: a value that was set must be read back."""

    def __init__(self, port: int) -> None:
        """Connect."""
        self.socket = socket.create_connection((HOST, port), SECONDS)
        self.file = self.socket.makefile("rb")

    def is_right(self, number: int) -> bool:
        """Return whether SET and GET of one value have the right replies."""
        key, value = b"key:%d" % (number % 5000), b"%d " % number * 20
        self.socket.sendall(self._words(b"SET", key, value) + self._words(b"GET", key))
        return self.file.read(5 + len(b"$%d\r\n" % len(value)) + len(value) + 2) == b"+OK\r\n$%d\r\n%s\r\n" % (
            len(value),
            value,
        )

    def _words(self, *words: bytes) -> bytes:
        return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words)


class Postgres:
    """PostgreSQL's protocol, version 3: known sums."""

    def __init__(self, port: int) -> None:
        """Connect as ``postgres``, who needs no password here."""
        self.socket = socket.create_connection((HOST, port), SECONDS)
        self.file = self.socket.makefile("rb")
        words = b"user\0postgres\0database\0postgres\0\0"
        self.socket.sendall(struct.pack(">II", len(words) + 8, 3 << 16) + words)
        self._rows()

    def is_right(self, number: int) -> bool:
        """Return whether one query has the right reply."""
        count = number % 3000 + 1
        query = f"select sum(n), md5(string_agg(n::text, ',')) is not null from generate_series(1, {count}) n".encode()
        self.socket.sendall(b"Q" + struct.pack(">I", len(query) + 5) + query + b"\0")
        rows = self._rows()
        return len(rows) == 1 and str(count * (count + 1) // 2).encode() in rows[0]

    def _rows(self) -> list[bytes]:
        """Return the rows up to "ready for query"."""
        rows = []
        while True:
            head = self.file.read(5)
            kind, size = head[:1], struct.unpack(">I", head[1:])[0]
            body = self.file.read(size - 4)
            if kind == b"E":
                raise OSError(body.decode(errors="replace"))
            if kind == b"D":
                rows.append(body)
            if kind == b"Z":
                return rows


KINDS: dict[str, type[Http] | type[Redis] | type[Postgres]] = {"http": Http, "redis": Redis, "postgres": Postgres}
BROKEN = (OSError, struct.error, http.client.HTTPException)


def main() -> None:
    """Send requests until killed."""
    kind, port, table = KINDS[sys.argv[1]], int(sys.argv[2]), Table(Path(sys.argv[3]))
    generator = random.Random()
    connection: Http | Redis | Postgres | None = None
    rounds = wrong = 0
    while True:
        started = time.monotonic_ns()
        try:
            connection = connection or kind(port)
            wrong += not connection.is_right(generator.randrange(1 << 30))
        except BROKEN as error:
            print(repr(error), file=sys.stderr, flush=True)
            wrong, connection = wrong + 1, None
        rounds += 1
        table.put(0, "requests", Line(rounds, 0, wrong, time.monotonic_ns() - started))
        time.sleep(NAP)


if __name__ == "__main__":
    main()
