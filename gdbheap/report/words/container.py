"""The text about the container: the memory that its control group uses, by kind, and its limit."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from gdbheap.errors import one_line
from gdbheap.report.text.numbers import counted
from gdbheap.report.text.style import Style

if TYPE_CHECKING:
    from gdbheap.answers.container import Container
    from gdbheap.host.cgroup import Pressure
    from gdbheap.host.tmpfs import TmpfsFile

__all__ = ["render"]

PATH_WIDTH = 60
MIN_PERCENT_WAITED = 1
SHOWN_FILES = 5
KILLED, HIT = "oom_kill", "max"


def render(answer: Container | None, lazy: int | None, style: Style, always: bool = True) -> str:
    """Return sentences about memory that was freed lazily (MADV_FREE), and about the control group's memory and limit.

    Return "" if neither is known. ``always``: describe the group even if it has no limit and none of its tasks waits
    for memory.
    """
    shown = answer is not None and (always or _is_pressed(answer))
    return "\n".join(filter(None, [_lazy(lazy, style), *(_group(answer, style) if answer and shown else [])]))


def _is_pressed(answer: Container) -> bool:
    waits = answer.pressure is not None and max(answer.pressure.some) >= MIN_PERCENT_WAITED
    return bool(answer.max is not None or answer.high is not None or answer.events.get(KILLED) or waits)


def _lazy(lazy: int | None, style: Style) -> str:
    if not lazy:
        return ""
    return style.filled(
        f"Freed lazily (MADV_FREE): {style.bytes(lazy)}{style.of_rss(lazy)} stays resident until the kernel needs "
        "memory. The kernel takes it back before it kills any process."
    )


def _group(answer: Container, style: Style) -> Iterator[str]:
    where = one_line(answer.path, PATH_WIDTH)
    limit = "no limit" if answer.max is None else f"limit {style.bytes(answer.max)}"
    above = "" if answer.max_of in (None, answer.path) else f", set on {one_line(answer.max_of, PATH_WIDTH)}"
    parts = ", ".join(_parts(answer, style))
    start = f"Container {where} uses {style.bytes(answer.current)} ({limit}{above})"
    yield style.filled(f"{start}{': ' if parts else ''}{parts}.")
    more = list(_more(answer, style))
    if more:
        yield style.filled(" ".join(f"{sentence}." for sentence in more))
    if answer.files:
        yield style.filled(_files(answer.files, style))


def _files(files: list[TmpfsFile], style: Style) -> str:
    """Return a sentence about the files in tmpfs that the process does not map. These files use memory until somebody
    removes them.
    """
    shown = [f"{one_line(file.file, PATH_WIDTH)} {style.bytes(file.bytes)}" for file in files[:SHOWN_FILES]]
    left = files[SHOWN_FILES:]
    more = [f"{len(left):,} more {style.bytes(sum(file.bytes for file in left))}"] * bool(left)
    size = style.bytes(sum(file.bytes for file in files))
    count = counted(len(files), "file")
    verb = "keeps" if len(files) == 1 else "keep"
    names = ", ".join(shown + more)
    return f"{count} in tmpfs, which this process does not map, {verb} {size} until removed: {names}."


def _parts(answer: Container, style: Style) -> Iterator[str]:
    """Yield the parts of the group's memory, as text. The parts add up to the group's whole memory."""
    named = (
        (None if answer.own is None else answer.own - answer.moved, "this process's anonymous memory"),
        (answer.others, "other processes"),
        (answer.cache, "page cache"),
        (answer.shmem, "shared memory and tmpfs"),
        (answer.kernel, "kernel memory"),
        (answer.rest, "unclassified"),
    )
    yield from (f"{what} {style.bytes(size)}" for size, what in named if size)


def _more(answer: Container, style: Style) -> Iterator[str]:
    """Yield the facts that decide whether the kernel will kill the group's processes for lack of memory."""
    if answer.inactive_file:
        yield f"{style.bytes(answer.inactive_file)} of page cache is reclaimed first"
    if answer.moved:
        yield f"{style.bytes(answer.moved)} of this process's memory still counts for its former control group"
    if answer.high is not None:
        yield f"The kernel slows the container's programs down above {style.bytes(answer.high)} (memory.high)"
    if answer.swap:
        yield f"{style.bytes(answer.swap)} of the container's memory is swapped out"
    if answer.events.get(HIT):
        yield f"The container hit its limit {counted(answer.events[HIT], 'time')}"
    if answer.events.get(KILLED):
        yield f"The OOM killer ended {counted(answer.events[KILLED], 'process', 'processes')}"
    if answer.pressure is not None and max(answer.pressure.some):
        yield _waited(answer.pressure)


def _waited(pressure: Pressure) -> str:
    whose = "The container's tasks" if pressure.scope == "group" else "Tasks on this machine"
    share = "/".join(f"{percent:.1f}" for percent in pressure.some)
    return f"{whose} waited for memory during {share} % of the last 10 s, 1 min and 5 min"
