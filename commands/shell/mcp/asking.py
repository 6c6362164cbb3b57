"""Answer command lines in child processes: in a session that keeps its target, or one line at a time."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import threading
import time
from typing import Any

from gdbheap.files import temporary_folder

__all__ = ["Asking", "Refused"]

# A client that waits for longer has given up: a graph of 80 million blocks takes a minute.
SECONDS = 600.0
TEXT = "--text"
REFRESH = "refresh"
UNFINISHED = f"no answer within {SECONDS:.0f} s; the process runs on: ask for less, as with 'quick' or 'budget'"


class Refused(Exception):
    """A line was not answered; the text says what is wrong and what to do."""


class Asking:
    """Answers command lines as text. ``always``: options for each line."""

    def __init__(self, always: list[str]) -> None:
        self._always = always
        self._kept: _Session | None = None
        # One line at a time, so that two targets are never in memory at once.
        self._lock = threading.Lock()

    def page(self, target: str) -> str:
        """Return the first page of a process or a core, as it is now. Raises Refused."""
        with self._lock:
            kept = self._session(target)
            if kept.answered:
                kept.line(REFRESH)
            return str(kept.line(TEXT)["text"])

    def kept(self, target: str, words: list[str]) -> str:
        """Return a command's answer about a target, which is kept from one line to the next. Raises Refused."""
        with self._lock:
            session = self._session(target)
            text = str(session.line(shlex.join([*words, TEXT]))["text"])
            age = time.time() - session.begun
            return (
                f"{text}\n(All of this is as it was {age:.0f} s ago; first_page looks at it anew.)" if age > 5 else text
            )

    def once(self, words: list[str]) -> str:
        """Return the answer of a command line. Raises Refused."""
        with self._lock:
            return _once([*words, *self._always])

    def growth(self, target: str, seconds: float) -> str:
        """Return what changed in a process within that many seconds. Raises Refused."""
        with self._lock, temporary_folder() as folder:
            before = os.path.join(folder, "before.heap")
            _once(["snapshot", target, before, *self._always])
            time.sleep(seconds)
            return _once(["diff", before, target, *self._always])

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
    """Return the words by which this program was started, without its arguments."""
    return [sys.executable, *sys.orig_argv[1 : len(sys.orig_argv) - len(sys.argv) + 1]]


def _once(words: list[str]) -> str:
    try:
        done = subprocess.run([*_program(), *words], stdin=subprocess.DEVNULL, capture_output=True, timeout=SECONDS)
    except subprocess.TimeoutExpired:
        raise Refused(UNFINISHED) from None
    text, wrong = done.stdout.decode("utf-8", "replace").rstrip("\n"), done.stderr.decode("utf-8", "replace").strip()
    if not text:
        raise Refused(wrong or f"it ended with status {done.returncode}")
    return f"{text}\n{wrong}" if done.returncode and wrong else text


class _Session:
    """``gdbheap shell`` in a child process."""

    def __init__(self, target: str, always: list[str]) -> None:
        self.target = target
        self.answered = 0
        self.begun = time.time()
        self._child = subprocess.Popen(
            [*_program(), "shell", target, "--json", *always],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )

    @property
    def is_over(self) -> bool:
        return self._child.poll() is not None

    def line(self, words: str) -> dict[str, Any]:
        """Return the document that answers a line. Raises Refused."""
        assert self._child.stdin is not None and self._child.stdout is not None
        if words == REFRESH:
            self.begun = time.time()
        timer = threading.Timer(SECONDS, self._child.kill)
        timer.start()
        try:
            self._child.stdin.write(words.encode() + b"\n")
            self._child.stdin.flush()
            said = self._child.stdout.readline()
        except BrokenPipeError:
            said = self._child.stdout.readline()
        finally:
            timer.cancel()
        if not said:
            self.end()
            raise Refused(UNFINISHED)
        answer = json.loads(said)
        self.answered += 1
        if "error" in answer:
            if "line" not in answer:
                self.end()
            raise Refused(_reason(answer["error"]))
        found: dict[str, Any] = answer["answer"] or {}
        return found

    def end(self) -> None:
        for stream in (self._child.stdin, self._child.stdout):
            if stream is not None:
                try:
                    stream.close()
                except OSError:
                    pass
        self._child.kill()
        self._child.wait()


def _reason(error: dict[str, Any]) -> str:
    what = str(error.get("what"))
    return "\n".join([what, *(f"Next: {step}" for step in error.get("next", []) if step not in what)])
