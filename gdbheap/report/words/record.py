"""The final text of ``gdbheap record``, about the file that was written."""

from __future__ import annotations

from gdbheap.report.text.numbers import counted
from gdbheap.report.text.style import Style
from gdbheap.sampling.recording import Recorded
from gdbheap.sampling.series import STANDARD_OUTPUT

__all__ = ["duration_text", "render"]

UNITS = (("d", 86400), ("h", 3600), ("min", 60))
WHY_ENDED = {
    "ended": "no process is left",
    "duration": "the requested time has passed",
    "interrupted": "the recording was interrupted",
    "closed": "the reader closed the pipe",
}


def render(answer: Recorded, style: Style) -> str:
    """Return the path and size of the recording, its number of samples, why it ended, and any failures.

    Return "" if standard output is used for the recording, or by a program that gdbheap started.
    """
    if answer.file == STANDARD_OUTPUT or answer.exit_status is not None:
        return ""
    parts = [f"{counted(answer.samples, 'sample')} of {counted(answer.processes, 'process', 'processes')}"]
    parts += [f"{answer.doubtful_samples:,} of the samples doubtful"] if answer.doubtful_samples else []
    parts.append(f"in {duration_text(answer.seconds)}")
    size, why = style.bytes(answer.size), WHY_ENDED[answer.reason]
    lines = [f"The recording is in {answer.file} ({size}): {', '.join(parts)}; {why}."]
    if answer.snapshots:
        lines.append(f"Saved {counted(len(answer.snapshots), 'snapshot')}; the last one is {answer.snapshots[-1]}.")
    lines += [f"Warning: {failure}" for failure in answer.failures]
    return "\n".join(map(style.filled, lines))


def duration_text(seconds: float) -> str:
    """Return a duration in its two largest units, such as "0.4 s", "3 min 20 s" or "2 d 4 h"."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    left = round(seconds)
    parts: list[str] = []
    for unit, size in (*UNITS, ("s", 1)):
        count, left = divmod(left, size)
        if count or parts:
            parts.append(f"{count} {unit}")
    return " ".join(parts[:2])
