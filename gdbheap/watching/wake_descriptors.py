"""Make descriptors that end a wait early when poll(2) reports them.

They are optional: without them the memory is only polled.
"""

from __future__ import annotations

import errno
import os
import select
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from gdbheap._native import Descriptor
from gdbheap.dataclass import dataclass
from gdbheap.host.procfs import PROC, ProcessFolder
from gdbheap.watching.memory_readings import GroupMemory

__all__ = ["Waker", "group_wakers", "machine_wakers", "process_wakers"]

PRESSURE = "memory.pressure"
# The pressure to report: for a tenth of the time, all programs wait for memory. Without CAP_SYS_RESOURCE the kernel
# allows only windows of 2 s (Documentation/accounting/psi.rst).
STALLS = (b"full 100000 1000000", b"full 200000 2000000")
EVENTFD_FLAGS = os.O_CLOEXEC | os.O_NONBLOCK


@dataclass
class Waker:
    """A descriptor that ends a wait, and the event that it reports.

    ``name``: the name of the event.
    ``mask``: the events of poll(2) to wait for.
    ``is_counter``: whether the descriptor must be read to reset it.
    ``owner``: closes the descriptor when the waker is deleted; None if the descriptor belongs to somebody else.
    """

    name: str
    descriptor: int
    mask: int
    is_counter: bool = False
    owner: Descriptor | None = None

    @classmethod
    def owning(cls, name: str, descriptor: int, mask: int, is_counter: bool = False) -> Waker:
        """Return a waker that closes its descriptor when it is itself deleted."""
        return cls(name, descriptor, mask, is_counter, Descriptor(descriptor))

    def clear(self) -> None:
        """Reset the descriptor, so that only the next event ends another wait."""
        if self.is_counter:
            with suppress(OSError):
                os.read(self.descriptor, 8)


def process_wakers(folder: ProcessFolder) -> list[Waker]:
    """Return the waker "end", which reports that the process has ended (pidfd_open(2), Linux 5.3); an empty list if the
    waker cannot be made."""
    return _those_that_can(lambda: Waker.owning("end", folder.pidfd(), select.POLLIN))


def machine_wakers() -> list[Waker]:
    """Return the waker "pressure", which reports that programs wait for memory (Linux 4.20); an empty list if the waker
    cannot be made.
    """
    return _those_that_can(lambda: _pressure(Path(PROC, "pressure", "memory")))


def group_wakers(group: GroupMemory, share: float) -> list[Waker]:
    """Return the wakers of a control group, without the wakers that the kernel or our permissions do not allow.

    Version 2: "pressure" (programs wait for memory) and "events" (an event count changed). Version 1, if we may write
    to the group: "mark" (more than ``share`` of the limit is used) and "oom" (the kernel chooses a process to kill)."""
    pressure = lambda: _pressure(group.folder / PRESSURE)  # noqa: E731
    if not group.is_first_version:
        return _those_that_can(pressure, lambda: Waker("events", group.events, select.POLLPRI))
    return _those_that_can(
        lambda: _first_version(group.folder, "mark", "memory.usage_in_bytes", str(int((group.limit or 0) * share))),
        lambda: _first_version(group.folder, "oom", "memory.oom_control"),
    )


def _those_that_can(*makers: Callable[[], Waker]) -> list[Waker]:
    return list(_made(makers))


def _made(makers: tuple[Callable[[], Waker], ...]) -> Iterator[Waker]:
    for make in makers:
        with suppress(OSError, AttributeError):
            yield make()


def _pressure(path: Path) -> Waker:
    """Return a waker that reports memory pressure. Raises OSError if the kernel or our permissions do not allow it."""
    descriptor = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    waker = Waker.owning("pressure", descriptor, select.POLLPRI)
    for stall in STALLS:
        try:
            os.write(descriptor, stall + b"\0")
            return waker
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
    raise OSError(errno.EINVAL, "the kernel allows no time window for pressure")


def _first_version(folder: Path, name: str, file: str, argument: str = "") -> Waker:
    """Return a waker with an eventfd that the kernel increments (cgroup-v1/memory.rst, sections 9 and 10). Raises
    OSError."""
    waker = Waker.owning(name, _eventfd(), select.POLLIN, is_counter=True)
    watched = os.open(folder / file, os.O_RDONLY | os.O_CLOEXEC)
    try:
        control = os.open(folder / "cgroup.event_control", os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.write(control, f"{waker.descriptor} {watched} {argument}".encode())
        finally:
            os.close(control)
    finally:
        os.close(watched)
    return waker


def _eventfd() -> int:
    make = getattr(os, "eventfd", None)
    if make is None:
        # os.eventfd exists since Python 3.10.
        import ctypes

        make = ctypes.CDLL(None).eventfd
    descriptor = int(make(0, EVENTFD_FLAGS))
    if descriptor < 0:
        raise OSError(errno.EMFILE, "no eventfd")
    return descriptor
