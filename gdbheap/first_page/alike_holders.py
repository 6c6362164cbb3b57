"""Merge similar holders into one row, such as the stacks of many threads. Their names differ only in a thread or an
address."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace

from gdbheap.answers.shared_out import MAX_PARTS, HolderPart
from gdbheap.findings.holder.rule import MainHolder

__all__ = ["fold_alike"]

# The most similar rows that stay separate.
MOST_ALIKE = 5
OF_THREAD = re.compile(r"^(stack|registers|thread-local data) of thread \d+")
AT_PLACE = re.compile(r" at 0x[0-9a-f]+")
MANY = {"stack": "stacks", "registers": "registers", "thread-local data": "thread-local data"}


def fold_alike(rows: Sequence[MainHolder]) -> list[MainHolder]:
    """Return the rows of holders. More than MOST_ALIKE similar rows become one row."""
    groups: defaultdict[tuple[str, str], list[MainHolder]] = defaultdict(list)
    for row in rows:
        groups[row.kind, _shape(row.path)].append(row)
    return [row for (_kind, shape), alike in groups.items() for row in _folded(shape, alike)]


def _shape(path: str) -> str:
    """Return a holder's name without the number of a thread or the address of a mapping, so that similar holders have
    equal names."""
    return AT_PLACE.sub("", OF_THREAD.sub(r"\1 of thread", path))


def _folded(shape: str, alike: list[MainHolder]) -> Iterator[MainHolder]:
    if len(alike) <= MOST_ALIKE or shape == alike[0].path:
        yield from alike
        return
    known = [row.resident for row in alike if row.resident is not None]
    shares = [row.share for row in alike if row.share is not None]
    most = max(alike, key=lambda row: row.bytes)
    yield replace(
        most,
        bytes=sum(row.bytes for row in alike),
        resident=sum(known) if len(known) == len(alike) else None,
        share=min(1.0, round(sum(shares), 4)) if len(shares) == len(alike) else None,
        path=_title(shape, len(alike)),
        parts=_parts(alike),
        way=None,
        address=None,
    )


def _title(shape: str, count: int) -> str:
    kind, of, rest = shape.partition(" of thread")
    return f"{MANY[kind]} of {count:,} threads{rest}" if of and kind in MANY else f"{count:,} mappings {shape}"


def _parts(alike: list[MainHolder]) -> list[HolderPart]:
    sums: defaultdict[str, list[int]] = defaultdict(lambda: [0, 0])
    for part in (part for row in alike for part in row.parts):
        sums[part.what][0] += part.count
        sums[part.what][1] += part.bytes
    found = [HolderPart(what, *total) for what, total in sums.items()]
    return sorted(found, key=lambda part: (-part.bytes, part.what))[:MAX_PARTS]
