"""The command as a fork of a process that has imported it: most of the time of a short command is its imports.

Whoever asks what the command answers asks here (``programs.ask``); how it starts is seen where tests run it
themselves."""

from __future__ import annotations

import atexit
import functools
import gc
import importlib
import json
import os
import pkgutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import traceback
from contextlib import suppress
from typing import NoReturn

PATIENCE = 120
# What gdb alone can import.
OF_GDB = ("gdbheap.commands.gdb", "gdbheap.loader")
MOST = 1 << 17
# Who starts Python and loads what is said by these.
MEANT = ("PYTHON", "LD_", "SUDO_", "COVERAGE_")


class Server:
    """A process that forks for each command, one after the other."""

    def __init__(self, command: str) -> None:
        self._lock = threading.Lock()
        self._channel, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._channel.settimeout(PATIENCE)
        with other:
            words = [sys.executable, __file__, str(other.fileno()), command]
            self._process = subprocess.Popen(words, pass_fds=[other.fileno()], stdin=subprocess.DEVNULL, cwd="/")
        atexit.register(self.end)

    def end(self) -> None:
        """Have it end: nobody asks any more."""
        self._channel.close()
        self._process.wait(PATIENCE)

    def run(self, words: list[str], environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
        """Return what the command says with these words. Raises TimeoutError."""
        with self._lock, tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as errors:
            request = json.dumps([words, environment, os.getcwd()]).encode()
            try:
                socket.send_fds(self._channel, [request], [output.fileno(), errors.fileno()])
                status = int(self._channel.recv(MOST))
            except BaseException:
                # What it says from now on may be about this.
                self._process.kill()
                server.cache_clear()
                raise
            output.seek(0)
            errors.seek(0)
            return subprocess.CompletedProcess(words, status, output.read(), errors.read())


@functools.cache
def server(command: str, pid: int, meant: tuple[tuple[str, str], ...]) -> Server:
    """Return the one of this process, ``pid``; another one where what says how Python starts is another."""
    return Server(command)


def run(command: str, words: list[str], environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Return what the installed ``command`` says with these words. Raises TimeoutError."""
    meant = tuple(sorted((name, value) for name, value in environment.items() if name.startswith(MEANT)))
    return server(command, os.getpid(), meant).run(words, environment)


def import_all() -> None:
    """Import what a command may import."""
    package = importlib.import_module("gdbheap")
    for found in pkgutil.walk_packages(package.__path__, "gdbheap.", onerror=lambda name: None):
        if not found.name.startswith(OF_GDB):
            with suppress(ImportError):
                importlib.import_module(found.name)


def serve(channel: socket.socket, command: str) -> None:
    """Fork for each request, until nobody asks any more."""
    import_all()
    # What is there stays: a child that counted references in all of it would have all of it copied.
    gc.collect()
    gc.freeze()
    while True:
        request, descriptors, _flags, _address = socket.recv_fds(channel, MOST, 2)
        if not request:
            return
        child = os.fork()
        if child == 0:
            channel.close()
            words, environment, folder = json.loads(request)
            become([command, *words], environment, folder, descriptors)
        for descriptor in descriptors:
            os.close(descriptor)
        channel.send(str(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])).encode())


def become(words: list[str], environment: dict[str, str], folder: str, outputs: list[int]) -> NoReturn:
    """Be the command with these words, its own name first."""
    from gdbheap.commands.shell.main import script

    for number, descriptor in enumerate(outputs, 1):
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    sys.argv = words
    signal.signal(signal.SIGINT, signal.default_int_handler)
    status: int | str | None = 1
    try:
        script()
    except SystemExit as end:
        status = end.code
        sys.stdout.flush()
    except BaseException:
        traceback.print_exc()
    finally:
        # Python's own end would take apart all that was imported.
        sys.stderr.flush()
        os._exit(int(status or 0))


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    # The folder of this file has modules of its own.
    sys.path.pop(0)
    serve(socket.socket(fileno=int(sys.argv[1])), sys.argv[2])
