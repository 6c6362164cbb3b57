"""Stop a process with care for other tracers, gdbheap's own priority, and pending signals."""

from __future__ import annotations

import gc
import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TypeVar

from gdbheap.errors import GdbheapError, NotPermitted
from gdbheap.host.procfs import ProcessFolder
from gdbheap.refusals import refusal

__all__ = ["ctrl_z_delayed", "let_go_early", "not_stopped", "patiently", "undisturbed", "when_untraced"]

Taken = TypeVar("Taken")

# The seconds to wait for another tracer, and for another gdbheap, which lets go soon even on a loaded machine.
OTHERS_SECONDS, OURS_SECONDS = 2.0, 10.0
REASONABLE_SECONDS = 10.0
HIGHEST_PRIORITY = -20
_JOB_CONTROL = {signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU}


def when_untraced(folder: ProcessFolder, take: Callable[[], Taken]) -> Taken:
    """Wait until no tracer has the process, then return the result of the function ``take``.

    ``take`` attaches to the process; if another tracer has it, ``take`` raises NotPermitted. gdbheap waits for at most
    OTHERS_SECONDS. If the tracer is another gdbheap, which will release the process soon, it waits for at most
    OURS_SECONDS. If a tracer came in between, ``take`` is called again. Raises the errors of ``take``.
    """
    began, was_traced = time.monotonic(), True
    while True:
        while (tracer := refusal.other_tracer(folder)) and time.monotonic() < began + _patience(tracer):
            _nap()
        try:
            return take()
        except NotPermitted:
            tracer = refusal.other_tracer(folder)
            # A tracer that was in the way may have detached by now: one more try shows whether it was the cause.
            if not (tracer or was_traced) or time.monotonic() > began + _patience(tracer):
                raise
            was_traced = bool(tracer)


def patiently(folder: ProcessFolder, take: Callable[[], Taken]) -> Taken:
    """Return the result of the function ``take``, which attaches to the process. Repeat the call if another tracer is
    in the way.

    If two tracers begin at the same moment, each may have attached to some of the process's threads. Both then release
    these threads and try again. Raises the errors of ``take`` (OSError, TimeoutError).
    """
    began, patience = time.monotonic(), OTHERS_SECONDS
    while True:
        try:
            return take()
        except PermissionError:
            # A tracer that has detached by now is no longer visible. The action that it prevented is allowed now.
            tracer = refusal.other_tracer(folder)
            contended = tracer or _is_allowed(folder)
            patience = max(patience, _patience(tracer))
            if not contended or time.monotonic() > began + patience:
                raise
        _nap()


def _patience(tracer: int) -> float:
    return OURS_SECONDS if refusal.is_gdbheap(tracer) else OTHERS_SECONDS


def _is_allowed(folder: ProcessFolder) -> bool:
    try:
        folder.check_memory()
    except OSError:
        return False
    return True


def _nap() -> None:
    time.sleep(random.uniform(0.005, 0.03))


def let_go_early(folder: ProcessFolder, seconds: float) -> GdbheapError:
    """Return the error for a process that was released before the answer was complete."""
    return GdbheapError(
        f"process {folder} was released after {seconds:.1f} s (--max-stop) before this could be answered:"
        " allow more time (--max-stop=SECONDS, 0 for no limit), or read a copy of it (--clone)"
    )


def not_stopped(folder: ProcessFolder, limit: float | None, error: TimeoutError) -> GdbheapError:
    """Return the error for threads that did not stop in time.

    ``limit``: the seconds that the threads had to stop; None if no limit was set.
    """
    if limit is not None and limit < REASONABLE_SECONDS:
        return let_go_early(folder, limit)
    return refusal.explain(folder, error)


@contextmanager
def ctrl_z_delayed() -> Iterator[None]:
    """Delay the terminal's stop signals until the end of the block: a stopped gdbheap cannot release a process.

    Threads that are started in the block delay them too.
    """
    held = signal.pthread_sigmask(signal.SIG_BLOCK, _JOB_CONTROL)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, held)


@contextmanager
def undisturbed() -> Iterator[None]:
    """Keep interruptions away while the block runs, because a process may be stopped.

    Ctrl-Z is delayed, and the garbage collector does not traverse existing objects. This thread has the highest
    priority that the system allows; threads that it starts have it too.
    """
    gc.freeze()
    before = os.getpriority(os.PRIO_PROCESS, 0)
    with suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, HIGHEST_PRIORITY)
    try:
        with ctrl_z_delayed():
            yield
    finally:
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, 0, before)
        gc.unfreeze()
