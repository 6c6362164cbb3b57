"""A redis-server whose keys come and go: docs/tutorial-jemalloc.md finds out why its memory stays.

Writes values of random sizes, then deletes nine of ten. Usage: redis_load.py [--keys=N] [--tidy] [--seconds=3600]
--tidy follows the tutorial's advice afterwards, and waits until the server has moved its blocks. The process itself
becomes the redis-server; another one sends the commands, prints "ready", and ends.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import socket
import tempfile
import time
from typing import BinaryIO

SIZES = (400, 2000)
# One in this many keys is not deleted.
STAYS = 10
# redis ignores this many free bytes in slabs, unless active-defrag-ignore-bytes is set.
IGNORED = 100 << 20


def connect(place: str) -> socket.socket:
    """Return a connection to the server, once it listens."""
    while True:
        connection = socket.socket(socket.AF_UNIX)
        try:
            connection.connect(place)
        except OSError:
            connection.close()
            time.sleep(0.01)
        else:
            return connection


def load(place: str, count: int, tidy: bool) -> None:
    """Write the values, and delete most of them; then let the server tidy up."""
    rng = random.Random(1)
    with connect(place) as connection, connection.makefile("rb") as answers:
        lines = [b"SET key:%d %s\r\n" % (number, b"x" * rng.randint(*SIZES)) for number in range(count)]
        lines += [b"DEL key:%d\r\n" % number for number in range(count) if number % STAYS]
        for start in range(0, len(lines), 1000):
            part = lines[start : start + 1000]
            connection.sendall(b"".join(part))
            for _ in part:
                answers.readline()
        if tidy:
            connection.sendall(b"CONFIG SET activedefrag yes\r\n")
            print(answers.readline().decode().strip(), flush=True)
            while not is_tidy(connection, answers):
                time.sleep(0.1)
            connection.sendall(b"MEMORY PURGE\r\n")
            answers.readline()


def is_tidy(connection: socket.socket, answers: BinaryIO) -> bool:
    """Return whether the server has moved its blocks. It stops once its slabs have fewer free bytes than it ignores."""
    connection.sendall(b"INFO memory\r\n")
    lines = answers.read(int(answers.readline()[1:]) + 2).decode().splitlines()
    figures = dict(line.split(":") for line in lines if ":" in line)
    return int(figures["allocator_frag_bytes"]) < IGNORED and figures["active_defrag_running"] == "0"


def main() -> None:
    """Start the load in a child, and become the server."""
    parser = argparse.ArgumentParser(description="A redis-server whose keys come and go.")
    parser.add_argument("--keys", type=int, default=200_000, help="how many keys to write (200,000)")
    parser.add_argument("--tidy", action="store_true", help="follow the tutorial's advice")
    parser.add_argument("--seconds", type=int, default=3600, help="how long to live at most (3600)")
    options = parser.parse_args()
    server = shutil.which("redis-server")
    if server is None:
        raise SystemExit("redis_load.py: there is no redis-server on the path")
    os.chdir(tempfile.mkdtemp())
    # The load runs in a grandchild, so that the server has no child to wait for.
    if os.fork() == 0:
        if os.fork() == 0:
            load("redis.sock", options.keys, options.tidy)
            print("ready", flush=True)
        return
    os.wait()
    signal.alarm(options.seconds)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    os.execv(server, ["redis-server", "--port", "0", "--unixsocket", "redis.sock", "--save", ""])


if __name__ == "__main__":
    main()
