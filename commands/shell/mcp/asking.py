"""Answer command lines by other processes of gdbheap: one session that keeps its target, or one line."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from gdbheap.errors import or_none
from gdbheap.files import temporary_folder
from gdbheap.host.procfs import ProcessFolder
from gdbheap.refusals.refusal import open_folder
from gdbheap.targets.typed_target import parse_target

__all__ = ["Asking", "Call", "Refused"]

# The longest wait for an answer: a graph of 80 million blocks takes a minute.
SECONDS = 600.0
TEXT = "--text"
REFRESH = "refresh"
UNFINISHED = f"no answer within {SECONDS:.0f} s; the process runs on: ask for less, as with 'quick' or 'budget'"
KILLED = "the process that answered was killed, or memory ran out: ask again, or for less"
OUT_OF_STEP = "the session lost its place and was ended: ask again"
CANCELLED = "cancelled"
# Answers older than this say how old they are, in seconds.
RECENT = 5


class Refused(Exception):
    """A line that was not answered; the text says what is wrong and what to do."""


class Call:
    """One question of a client, which may be cancelled from another thread."""

    def __init__(self) -> None:
        self._is_cancelled = threading.Event()
        self._child: subprocess.Popen[bytes] | None = None

    def cancel(self) -> None:
        """End what the question waits for."""
        self._is_cancelled.set()
        child = self._child
        if child is not None:
            child.kill()

    def sleep(self, seconds: float) -> None:
        """Wait. Raises Refused if the question is cancelled."""
        if self._is_cancelled.wait(seconds):
            raise Refused(CANCELLED)

    @contextmanager
    def waiting_for(self, child: subprocess.Popen[bytes]) -> Iterator[list[bool]]:
        """Have the child end with the question, or when it takes too long; the list is not empty after that."""
        late: list[bool] = []

        def end() -> None:
            late.append(True)
            child.kill()

        timer = threading.Timer(SECONDS, end)
        timer.daemon, self._child = True, child
        timer.start()
        try:
            self.sleep(0)
            yield late
        finally:
            timer.cancel()
            self._child = None


class Asking:
    """Answers command lines as text. ``always``: options that hold for each line."""

    def __init__(self, always: list[str]) -> None:
        self._always = always
        self._kept: _Session | None = None
        # One line at a time: two targets are not kept in memory at once.
        self._lock = threading.Lock()

    def page(self, call: Call, target: str) -> str:
        """Return the first page of a process or a core, as it is now. Raises Refused."""
        with self._lock:
            kept = self._session(target)
            if kept.has_answered:
                try:
                    kept.line(call, REFRESH)
                except Refused:
                    # The process has ended: another one may have its id.
                    self.close()
                    kept = self._session(target)
            return str(kept.line(call, TEXT)["text"])

    def kept(self, call: Call, target: str, words: list[str]) -> str:
        """Return what a command says of a target that is kept from one line to the next. Raises Refused."""
        with self._lock:
            session = self._session(target)
            text = str(session.line(call, shlex.join([*words, TEXT]))["text"])
            age = time.time() - session.begun
            if session.has_ended():
                return f"{text}\n(The process has ended. All of this is as it was {age:.0f} s ago.)"
            return (
                f"{text}\n(All of this is as it was {age:.0f} s ago; first_page reads it anew.)"
                if age > RECENT
                else text
            )

    def once(self, call: Call, words: list[str]) -> str:
        """Return what a command line says. Raises Refused."""
        with self._lock:
            return _once(call, [*words, *self._always])

    def growth(self, call: Call, target: str, seconds: float) -> str:
        """Return what changed in a process while ``seconds`` passed. Raises Refused."""
        with self._lock, temporary_folder() as folder:
            before = os.path.join(folder, "before.heap")
            _once(call, ["snapshot", target, before, *self._always])
            call.sleep(seconds)
            return _once(call, ["diff", before, target, *self._always])

    def close(self) -> None:
        """End the session."""
        if self._kept is not None:
            self._kept.end()
            self._kept = None

    def _session(self, target: str) -> _Session:
        if self._kept is None or self._kept.target != target or self._kept.is_over:
            self.close()
            self._kept = _Session(target, self._always)
        return self._kept


def _program() -> list[str]:
    """Return the words by which this program was started, without its own arguments."""
    return [sys.executable, *sys.orig_argv[1 : len(sys.orig_argv) - len(sys.argv) + 1]]


def _once(call: Call, words: list[str]) -> str:
    child = subprocess.Popen(
        [*_program(), *words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    try:
        with call.waiting_for(child) as late:
            said, complained = child.communicate()
    finally:
        child.kill()
        child.wait()
    call.sleep(0)
    text, wrong = (part.decode("utf-8", "replace").strip("\n") for part in (said, complained))
    if child.returncode < 0:
        raise Refused(UNFINISHED if late else KILLED)
    if not text:
        raise Refused(wrong or f"it ended with status {child.returncode}")
    return f"{text}\n{wrong}" if child.returncode and wrong else text


def _process(target: str) -> ProcessFolder | None:
    found = parse_target(target)
    return None if isinstance(found, str) else open_folder(found)


class _Session:
    """``gdbheap shell`` in a process of its own."""

    def __init__(self, target: str, always: list[str]) -> None:
        self.target = target
        self.begun = time.time()
        # Held, as another process may get its id.
        self._process = or_none(lambda: _process(target))
        self._sent = 0
        self._child = subprocess.Popen(
            [*_program(), "shell", target, "--json", *always],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )

    @property
    def is_over(self) -> bool:
        return self._child.poll() is not None

    @property
    def has_answered(self) -> bool:
        return self._sent > 0

    def has_ended(self) -> bool:
        """Return whether the process of this session has ended; False for a core."""
        return self._process is not None and not self._process.is_there()

    def line(self, call: Call, words: str) -> dict[str, Any]:
        """Return the document that answers a line. Raises Refused."""
        assert self._child.stdin is not None and self._child.stdout is not None
        if words == REFRESH:
            self.begun = time.time()
        with call.waiting_for(self._child) as late:
            try:
                self._child.stdin.write(words.encode() + b"\n")
                self._child.stdin.flush()
            except BrokenPipeError:
                pass
            said = self._child.stdout.readline()
        if not said:
            self.end()
            call.sleep(0)
            raise Refused(UNFINISHED if late else KILLED)
        self._sent += 1
        try:
            answer = json.loads(said)
        except ValueError:
            answer = {}
        if "error" in answer and "line" not in answer:
            # The session could not begin.
            self.end()
            raise Refused(_reason(answer["error"]))
        if answer.get("line") != self._sent:
            self.end()
            raise Refused(OUT_OF_STEP)
        if "error" in answer:
            raise Refused(_reason(answer["error"]))
        found: dict[str, Any] = answer["answer"] or {}
        return found

    def end(self) -> None:
        """End the process."""
        self._child.kill()
        for stream in (self._child.stdin, self._child.stdout):
            if stream is not None:
                try:
                    stream.close()
                except OSError:
                    pass
        self._child.wait()


def _reason(error: dict[str, Any]) -> str:
    what = str(error.get("what"))
    return "\n".join([what, *(f"Next: {step}" for step in error.get("next", []) if step not in what)])
