"""Holes that large buffers left inside arenas, since malloc no longer gives such buffers mappings of their own."""

from __future__ import annotations

from gdbheap.answers.findings.finding import Claim, Evidence, Finding
from gdbheap.answers.findings.settings import MMAP_THRESHOLD
from gdbheap.answers.findings.thresholds import DEFAULT, MMAPPED_AGAIN, mmap_threshold
from gdbheap.words import counted, size_text


def find(evidence: Evidence) -> list[Claim]:
    """The resident pages of holes of 128 KiB or more, where used chunks of that size stand beside them."""
    glibc, holes = evidence.glibc, evidence.large_holes
    if glibc is None or not holes:
        return []
    kept = evidence.released(holes)
    if not evidence.worth(kept):
        return []
    used = [(size, count) for size, count in glibc.used_chunks if size > DEFAULT]
    count, size = sum(count for _, count in used), sum(size * count for size, count in used)
    if size * 4 < kept:
        return []
    text = (
        f"{counted(len(holes), 'hole')} of 128 KiB or more lie between {counted(count, 'used chunk')} of that size "
        f"({size_text(size)}): malloc gives a buffer a mapping of its own, which free() gives back at once, only from "
        f"mmap_threshold on, which is {mmap_threshold(glibc.malloc.par)}"
    )
    figures = {
        "holes": len(holes),
        "used_chunks": count,
        "used": size,
        "mmap_threshold": glibc.malloc.par.mmap_threshold,
    }
    finding = Finding("large-chunks", kept, text, MMAPPED_AGAIN, figures, environment=MMAP_THRESHOLD)
    return [Claim(finding, lambda: holes, f"start it with {next(iter(MMAP_THRESHOLD))}=131072")]
