"""Stop a process without disturbing others: other tracers, our own priority, pending signals."""

from __future__ import annotations

import gc
import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TypeVar

from gdbheap.errors import GdbheapError
from gdbheap.host.procfs import ProcessFolder
from gdbheap.refusals import refusal

__all__ = ["let_go_early", "not_stopped", "patiently", "undisturbed", "without_tracer"]

Taken = TypeVar("Taken")

# How many seconds to wait for another tracer, and for another gdbheap, which lets go soon even on a loaded machine.
OTHERS_SECONDS, OURS_SECONDS = 2.0, 10.0
REASONABLE_SECONDS = 10.0
HIGHEST_PRIORITY = -20
_JOB_CONTROL = {signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU}


def without_tracer(folder: ProcessFolder) -> None:
    """Wait a moment while another tracer has the process: another gdbheap will be done soon, a debugger will not."""
    began = time.monotonic()
    while (tracer := refusal.other_tracer(folder)) and time.monotonic() < began + _patience(tracer):
        _nap()


def patiently(folder: ProcessFolder, take: Callable[[], Taken]) -> Taken:
    """Return the result of ``take``, which seizes the process. Raises what ``take`` raises (OSError, TimeoutError).

    If two tracers begin at the same moment, each may have seized some of the process's threads. Both then release these
    threads, and this tracer tries again.
    """
    began, patience = time.monotonic(), OTHERS_SECONDS
    while True:
        try:
            return take()
        except PermissionError:
            # A tracer that has detached by now is no longer visible; what it prevented is allowed now.
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
    """Return the error for a process that was released before there was an answer."""
    return GdbheapError(
        f"process {folder} was released after {seconds:.1f} s (--max-stop) before this could be answered:"
        " give it longer (--max-stop=SECONDS, 0 for no limit), or read a copy of it (--clone)"
    )


def not_stopped(folder: ProcessFolder, limit: float | None, error: TimeoutError) -> GdbheapError:
    """Return the error for threads that did not stop in time: within the limit, or within a reasonable time."""
    if limit is not None and limit < REASONABLE_SECONDS:
        return let_go_early(folder, limit)
    return refusal.explain(folder, error)


@contextmanager
def undisturbed() -> Iterator[None]:
    """Within a block, hold back Ctrl-Z, collect no existing objects as garbage, and give this thread top priority.

    Threads that it starts have the priority too. The priority is given only if the system allows it.
    """
    held = signal.pthread_sigmask(signal.SIG_BLOCK, _JOB_CONTROL)
    gc.freeze()
    before = os.getpriority(os.PRIO_PROCESS, 0)
    with suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, HIGHEST_PRIORITY)
    try:
        yield
    finally:
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, 0, before)
        gc.unfreeze()
        signal.pthread_sigmask(signal.SIG_SETMASK, held)
