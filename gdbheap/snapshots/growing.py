"""The finding of ``heap`` about the growth since an earlier snapshot."""

from __future__ import annotations

import shlex

from gdbheap.findings.finding import MIN_FINDING_BYTES, MIN_PERCENT_OF_RSS, Finding
from gdbheap.findings.growing.rule import Growing
from gdbheap.first_page.summary import Summary
from gdbheap.snapshots.difference import Difference, OwnerChange
from gdbheap.snapshots.snapshot import Snapshot

__all__ = ["growing"]

# An object is named if it retains at least this share of the growth.
MIN_SHARE_OF_GROWTH = 0.5


def growing(earlier: Snapshot, now: Snapshot, found: Difference, path: str) -> Finding | None:
    """Return the finding about growth; None if the growth is too small for a finding.

    ``path``: the file of the earlier snapshot, for a command line to paste."""
    first, last = earlier.ledger.summary, now.ledger.summary
    if first is None or last is None or not found.same_process:
        return None
    more = last.used - first.used
    resident = min(more, _resident(first, last, more))
    if resident < MIN_FINDING_BYTES or 100 * resident < MIN_PERCENT_OF_RSS * (now.ledger.rss.bytes or 0):
        return None
    kind = max(found.types, key=lambda row: row.bytes, default=None)
    block = max(found.sizes, key=lambda row: row.bytes, default=None)
    owner = _owner(found, more)
    figures = Growing(
        round(found.compared[-1].time - found.compared[0].time),
        more,
        kind.type if kind else None,
        kind.count if kind else 0,
        kind.bytes if kind else 0,
        block.allocator if block else None,
        block.size if block else 0,
        block.count if block else 0,
        owner.address if owner else None,
        owner.path if owner else None,
        owner.retained if owner else 0,
        None if found.seconds_left is None else round(found.seconds_left),
    )
    where = now.target.get("core") or now.target.get("pid")
    return Finding("growing", more, figures, [f"gdbheap diff {shlex.quote(path)} {shlex.quote(str(where))}"])


def _resident(earlier: Summary, now: Summary, unknown: int) -> int:
    """Return by how many bytes the resident memory in use grew. Return ``unknown`` if one of the snapshots lacks the
    figure.
    """
    if earlier.used_resident is None or now.used_resident is None:
        return unknown
    return now.used_resident - earlier.used_resident


def _owner(found: Difference, more: int) -> OwnerChange | None:
    """Return the innermost object that retains most of the growth; None if no object does.

    Each object above it on the path retains as much, but is further from the cause.
    """
    most = [row for row in found.owners if row.retained >= MIN_SHARE_OF_GROWTH * more]
    return min(most, key=lambda row: (row.looks[-1], -len(row.path or "")), default=None)
