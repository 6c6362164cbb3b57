"""Have command lines answered by other gdbheap processes: a session that keeps its target, or a process for one
line."""

from __future__ import annotations

import json
import os
import shlex
import shutil
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

__all__ = ["Asking", "Question", "Refused"]

# The longest wait for an answer. For 80 million blocks, the graph alone takes a minute.
SECONDS = 600.0
TEXT = "--text"
REFRESH = "refresh"
UNFINISHED = (
    f"no answer within {SECONDS:.0f} s; the process runs on: ask for less, for example with 'quick' or 'budget'"
)
KILLED = "the answering gdbheap was killed, or memory ran out: ask again, or ask for less"
OUT_OF_STEP = "an answer did not belong to its question, and the session was ended: ask again"
CANCELLED = "cancelled"
ENDED = "the process ended between the two readings"
# If an answer is older than this many seconds, a line says how old it is.
RECENT = 5


class Refused(Exception):
    """Raised if a command line was not answered. The text names the error and the next step."""


class Question:
    """One question of a client. It can be cancelled from another thread."""

    def __init__(self) -> None:
        self._is_cancelled = threading.Event()
        self._child: subprocess.Popen[bytes] | None = None

    def cancel(self) -> None:
        """Cancel the question, and kill the process for which it waits."""
        self._is_cancelled.set()
        child = self._child
        if child is not None:
            child.kill()

    def sleep(self, seconds: float) -> None:
        """Wait this many seconds. Raises Refused if the question is cancelled."""
        if self._is_cancelled.wait(seconds):
            raise Refused(CANCELLED)

    @contextmanager
    def waiting_for(self, child: subprocess.Popen[bytes]) -> Iterator[list[bool]]:
        """Kill the child if the question is cancelled inside the block, or if the block takes too long.

        The yielded list is empty unless the child was killed because it took too long.
        """
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
    """Answers command lines as text, by processes of gdbheap. ``always``: options that are added to each line."""

    def __init__(self, always: list[str]) -> None:
        self._always = always
        self._kept: _Session | None = None
        # Only one line is answered at a time, so that two targets are not in memory at once.
        self._lock = threading.Lock()
        # The question in progress, for ``abandon``.
        self._call: Question | None = None
        self._folder: str | None = None

    @contextmanager
    def _turn(self, call: Question) -> Iterator[None]:
        """Wait until no other call is being answered, then answer this call alone within the block."""
        with self._lock:
            self._call = call
            try:
                yield
            finally:
                self._call = None

    def page(self, call: Question, target: str) -> str:
        """Return the first page of a process or a core, in its current state. Raises Refused."""
        with self._turn(call):
            kept = self._session(target)
            if kept.has_answered:
                try:
                    kept.line(call, REFRESH)
                except Refused:
                    # The process has ended, and its id may now belong to another process.
                    self.close()
                    kept = self._session(target)
            return str(kept.line(call, TEXT)["text"])

    def kept(self, call: Question, target: str, words: list[str]) -> str:
        """Return the answer of a command about a target that a session keeps. Raises Refused."""
        with self._turn(call):
            session = self._session(target)
            text = str(session.line(call, shlex.join([*words, TEXT]))["text"])
            age = time.time() - session.begun
            if session.has_ended():
                return f"{text}\n(The process has ended. This answer shows the state {age:.0f} s ago.)"
            return (
                f"{text}\n(This answer shows the state {age:.0f} s ago; first_page reads the target anew.)"
                if age > RECENT
                else text
            )

    def once(self, call: Question, words: list[str]) -> str:
        """Return the answer to one command line, from a new process. Raises Refused."""
        with self._turn(call):
            return _once(call, [*words, *self._always])

    def growth(self, call: Question, target: str, seconds: float) -> str:
        """Return the changes in a process during this many seconds. Raises Refused."""
        process = or_none(lambda: _process(target))
        with self._turn(call), temporary_folder() as folder:
            self._folder = folder
            try:
                before = os.path.join(folder, "before.heap")
                _once(call, ["snapshot", target, before, *self._always])
                call.sleep(seconds)
                if process is not None and not process.is_there():
                    raise Refused(ENDED)
                return _once(call, ["diff", before, target, *self._always])
            finally:
                self._folder = None

    def abandon(self) -> None:
        """End all processes that were started, for a program that ends without waiting for its threads."""
        call, folder = self._call, self._folder
        if call is not None:
            call.cancel()
        self.close()
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)

    def close(self) -> None:
        """End the session, if there is one."""
        if self._kept is not None:
            self._kept.end()
            self._kept = None

    def _session(self, target: str) -> _Session:
        if self._kept is None or self._kept.target != target or self._kept.is_over:
            self.close()
            self._kept = _Session(target, self._always)
        return self._kept


def _program() -> list[str]:
    """Return the command line with which this program was started, without its own arguments."""
    return [sys.executable, *sys.orig_argv[1 : len(sys.orig_argv) - len(sys.argv) + 1]]


def _once(call: Question, words: list[str]) -> str:
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
        raise Refused(wrong or f"gdbheap ended with status {child.returncode}")
    return f"{text}\n{wrong}" if child.returncode and wrong else text


def _process(target: str) -> ProcessFolder | None:
    found = parse_target(target)
    return None if isinstance(found, str) else open_folder(found)


class _Session:
    """A process of ``gdbheap shell``, whose target stays the same."""

    def __init__(self, target: str, always: list[str]) -> None:
        self.target = target
        self.begun = time.time()
        # Hold the process, because its id may be reused after its end.
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
        """Return whether the target is a process that has ended."""
        return self._process is not None and not self._process.is_there()

    def line(self, call: Question, words: str) -> dict[str, Any]:
        """Return the document that answers a line of the session. Raises Refused."""
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
            # The session could not read its target.
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
        """End the session's process."""
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
