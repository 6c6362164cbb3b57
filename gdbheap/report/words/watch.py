"""The text of ``gdbheap watch``: a line for each event."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

from gdbheap.errors import own_line
from gdbheap.report.text.numbers import counted, duration_text
from gdbheap.report.text.style import Style
from gdbheap.stack_frames import PYTHON, StackFrame
from gdbheap.targets.started_command import KILLED, signal_name
from gdbheap.text import printable_record
from gdbheap.watching.messages import Limit, WatchMessage
from gdbheap.watching.triggers import Cause

if TYPE_CHECKING:
    from gdbheap.watching.watcher import WatchRequest

__all__ = ["counts_text", "event_text", "started_text"]

KINDS = {"snapshot": "the snapshot is", "heap": "the output of heap is", "core": "the core is"}
STEPS = {"save": "its files are not written yet", "run": "the command of --run has not ended yet"}
# A line names at most this many process ids.
SHOWN = 10
ENDS = {
    "count": "it has acted as often as --count allows",
    "ended": "no process is left",
    "duration": "the time of --duration is over",
    "asked": "a signal asked it to end",
}


def event_text(event: WatchMessage, style: Style) -> str:
    """Return the line that is printed for one event: its local time, and what happened."""
    tell = {"began": _began, "ended": _ended, "killed": _killed, "unseen": _unseen,
            "unrestored": _reasons, "lost": _reasons, "missed": _missed, "left-out": _left_out, "serving": _serving,
            "acting": _acting, "acted": _acted, "nobody": _nobody, "unreadable": _unreadable,
            "end": _end}[event.event]  # fmt: skip
    # Errors are already sentences, and gdbheap itself chose the paths of the files.
    named_event = replace(printable_record(event), errors=event.errors, files=event.files, url=event.url)
    said = tell(named_event, style)
    return f"{_local_time(event.time)} {own_line(said, 4000)}"


def started_text(
    moment: float, wanted: WatchRequest, is_group: bool, count: int | None, is_by_user: bool, style: Style
) -> str:
    """Return the first line of a watch: the conditions of its actions, and when it ends.

    ``is_group``: whether it watches a control group as a whole. ``count``: the number of actions after which it ends,
    None if it does not; ``is_by_user``: whether this number is for each user separately.
    """
    size, ends = "the group needs" if is_group else "RSS is", ""
    found = [] if wanted.rss is None else [f"{size} more than {style.bytes(wanted.rss)}"]
    if wanted.grows is not None:
        what = "the group" if is_group else "RSS"
        found.append(f"{what} grows by {style.bytes(wanted.grows[0])} in {duration_text(wanted.grows[1])}")
    found += ["memory is nearly full (--at-oom)"] * wanted.at_oom
    found += ["Python gets no memory (MemoryError)"] * wanted.memory_errors
    if count is not None:
        ends = f", and ends after {counted(count, 'action')}{' for each user' if is_by_user else ''} (--count)"
    return f"{_local_time(moment)} the watch acts when {' or '.join(found)}{ends}"


def counts_text(moment: float, began: int, ended: int, too_late: int = 0) -> str:
    """Return one line for many processes that began or ended.

    ``too_late``: how many ended before the watch could act on them.
    """
    counts = ((began, "began"), (ended, "ended"), (too_late, "ended before the watch could act"))
    parts = [f"{counted(count, 'more process', 'more processes')} {what}" for count, what in counts if count]
    return f"{_local_time(moment)} {'; '.join(parts)}"


def _local_time(moment: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(moment))


def _process(event: WatchMessage) -> str:
    return f"process {event.pid} ({event.name})" if event.name else f"process {event.pid}"


def _began(event: WatchMessage, style: Style) -> str:
    limits = "".join(f"; {_limit(limit, style)}" for limit in event.limits)
    return f"{_process(event)} is watched{limits}"


def _limit(limit: Limit, style: Style) -> str:
    ours = "; this watch is part of that group: start the watch in another control group" if limit.is_ours else ""
    return (
        f"the watch acts when {_group(limit.cgroup)} needs {style.bytes(limit.mark)} of its limit of "
        f"{style.bytes(limit.limit)}{ours}"
    )


def _group(name: str | None) -> str:
    return f"the control group {name}" if name else "the machine"


def _ended(event: WatchMessage, style: Style) -> str:
    status = event.exit_status
    if event.oom:
        return f"{_process(event)} has ended: SIGKILL, while the kernel's OOM killer was at work"
    if status is None or status >= 0:
        return f"{_process(event)} has ended{'' if status is None else f' with status {status}'}"
    return f"{_process(event)} has ended: {signal_name(KILLED - status) or f'signal {-status}'}"


def _nobody(event: WatchMessage, style: Style) -> str:
    return "no running process matches: the watch waits until one starts"


def _unreadable(event: WatchMessage, style: Style) -> str:
    return _of_several(event, "cannot be read")


def _killed(event: WatchMessage, style: Style) -> str:
    return f"the kernel killed a process of {_group(event.cgroup)}, which was out of memory"


def _unseen(event: WatchMessage, style: Style) -> str:
    return f"{_process(event)}: gdbheap cannot notice its MemoryErrors: {'; '.join(event.errors)}"


def _reasons(event: WatchMessage, style: Style) -> str:
    return "; ".join(event.errors)


def _missed(event: WatchMessage, style: Style) -> str:
    return f"{_process(event)} could not be read: {'; '.join(event.errors)}"


def _left_out(event: WatchMessage, style: Style) -> str:
    return _of_several(event, "is not watched" if len(event.pids) == 1 else "are not watched")


def _of_several(event: WatchMessage, what: str) -> str:
    shown = ", ".join(map(str, event.pids[:SHOWN]))
    more = f" and {counted(len(event.pids) - SHOWN, 'other')}" if len(event.pids) > SHOWN else ""
    count = counted(len(event.pids), "process", "processes")
    return f"{count} {what}: {'; '.join(event.errors)} (process ids: {shown}{more})"


def _serving(event: WatchMessage, style: Style) -> str:
    open_to = ": everybody who can reach this address can read process ids, names of programs and their memory use"
    return f"metrics are at {event.url}{open_to if event.everybody else ''}"


def _end(event: WatchMessage, style: Style) -> str:
    done = f"acted {_often(event.acted)}" if event.acted else "did not act"
    failed = f"; something failed {_often(event.failed)}" if event.failed else ""
    return f"the watch has ended, because {ENDS[event.why_ended]}; it {done}{failed}"


def _often(count: int) -> str:
    return "once" if count == 1 else counted(count, "time")


def _acting(event: WatchMessage, style: Style) -> str:
    return "; ".join([*_cause_and_files(event, style), STEPS[event.step]])


def _acted(event: WatchMessage, style: Style) -> str:
    return "; ".join([*_cause_and_files(event, style), *event.errors])


def _cause_and_files(event: WatchMessage, style: Style) -> list[str]:
    held = "" if event.held is None else f" (the process was stopped for {duration_text(event.held)})"
    missing = ", which is incomplete" if event.partial else ""
    parts = [f"{_process(event)}: {cause_text(event.cause, style)}" if event.cause else _process(event)]
    parts += [f"it was running {frame.name} ({frame.file}:{frame.line})" for frame in _innermost(event)]
    parts += [f"{KINDS[kind]} in {path}{held if place == 0 else ''}{missing if place == 0 else ''}"
              for place, (kind, path) in enumerate(event.files.items())]  # fmt: skip
    return parts


def _innermost(event: WatchMessage) -> list[StackFrame]:
    """Return a list with the innermost Python frame of the event's stack: the function that asked for memory.

    The list is empty if the stack has no Python frame.
    """
    return [frame for frame in event.stack if frame.kind == PYTHON][-1:]


def cause_text(cause: Cause, style: Style) -> str:
    """Return a text that says why the watch acted."""
    size, bound = style.bytes(cause.bytes), style.bytes(cause.bound)
    if size == bound:
        size, bound = f"{cause.bytes:,} B", f"{cause.bound:,} B"
    where = "its RSS is" if cause.cgroup is None else f"{_group(cause.cgroup)} needs"
    grown = "its RSS" if cause.cgroup is None else _group(cause.cgroup)
    limit = "" if cause.limit is None else f" of {style.bytes(cause.limit)}"
    seconds = duration_text(cause.seconds or 0)
    return {
        "rss": f"{where} {size}, more than {bound}",
        "grows": f"{grown} grew by more than {bound} in {seconds}, to {size}",
        "limit": f"{where} {size}{limit}, more than {bound}",
        "soon": f"{where} {size}{limit}, and reaches the limit in {seconds} at this rate",
        "pressure": f"{where} {size}{limit}, and its programs wait for memory",
        "memory-error": f"Python got no memory (MemoryError), and {where} {size}",
        "oom": f"{_group(cause.cgroup)} is out of memory",
    }.get(cause.kind, cause.kind)
