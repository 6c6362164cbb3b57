"""Run the command as a fork of a process that has imported it, because a short command spends most of its time on
imports.

Tests of answers use this (``programs.ask``); tests of the start run the command itself.
"""

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
# Modules that only gdb can import.
OF_GDB = ("gdbheap.commands.gdb", "gdbheap.loader")
MOST = 1 << 17
# Variables that influence the start of Python and the loader.
MEANT = ("PYTHON", "LD_", "SUDO_", "COVERAGE_")


class Server:
    """A process that forks for each command; commands run one after another."""

    def __init__(self, command: str) -> None:
        self._lock = threading.Lock()
        self._channel, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._channel.settimeout(PATIENCE)
        with other:
            words = [sys.executable, __file__, str(other.fileno()), command]
            self._process = subprocess.Popen(words, pass_fds=[other.fileno()], stdin=subprocess.DEVNULL, cwd="/")
        atexit.register(self.end)

    def end(self) -> None:
        """Let the server end."""
        self._channel.close()
        self._process.wait(PATIENCE)

    def run(self, words: list[str], environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
        """Return the result of the command with these arguments. Raises TimeoutError."""
        with self._lock, tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as errors:
            request = json.dumps([words, environment, os.getcwd()]).encode()
            try:
                socket.send_fds(self._channel, [request], [output.fileno(), errors.fileno()])
                status = int(self._channel.recv(MOST))
            except BaseException:
                # Otherwise later output could belong to this request.
                self._process.kill()
                server.cache_clear()
                raise
            output.seek(0)
            errors.seek(0)
            return subprocess.CompletedProcess(words, status, output.read(), errors.read())


@functools.cache
def server(command: str, pid: int, meant: tuple[tuple[str, str], ...]) -> Server:
    """Return the server of this process, ``pid``. There is a separate server for each value of the variables that
    affect Python's start.
    """
    return Server(command)


def run(command: str, words: list[str], environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Return the result of the installed ``command`` with these arguments. Raises TimeoutError."""
    meant = tuple(sorted((name, value) for name, value in environment.items() if name.startswith(MEANT)))
    return server(command, os.getpid(), meant).run(words, environment)


def import_all() -> None:
    """Import all that a command may import."""
    package = importlib.import_module("gdbheap")
    for found in pkgutil.walk_packages(package.__path__, "gdbheap.", onerror=lambda name: None):
        if not found.name.startswith(OF_GDB):
            with suppress(ImportError):
                importlib.import_module(found.name)


def serve(channel: socket.socket, command: str) -> None:
    """Fork for each request, until the channel is closed."""
    import_all()
    # Present objects stay: a child that counted references in all of them would copy all their pages.
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
    """Become the command with these arguments, its own name first."""
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
        # Python's own end would delete all imported modules.
        sys.stderr.flush()
        os._exit(int(status or 0))


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    # The folder of this file has its own modules.
    sys.path.pop(0)
    serve(socket.socket(fileno=int(sys.argv[1])), sys.argv[2])
