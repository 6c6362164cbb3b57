"""Write a heap to a file, as a snapshot or as a page for a browser. The commands and the library use this module."""

from __future__ import annotations

from dataclasses import field

from gdbheap.dataclass import dataclass
from gdbheap.files import PRIVATE, write_bytes
from gdbheap.heap import Heap
from gdbheap.report.text.style import Style
from gdbheap.snapshots.file import write
from gdbheap.snapshots.snapshot import SnapshotWithBlocks, WrittenSnapshot, take

__all__ = ["HtmlPage", "look_report", "target_report", "write_page", "write_snapshot", "written"]


@dataclass(frozen=True)
class HtmlPage:
    """An HTML page.

    ``data``: its bytes.
    ``missing``: a line for each answer that it lacks.
    ``is_blind``: whether most of the memory was not analysed.
    """

    data: bytes
    missing: list[str] = field(default_factory=list)
    is_blind: bool = False


def write_snapshot(
    heap: Heap,
    path: str,
    with_owners: bool | None = None,
    with_blocks: bool = False,
    with_contents: bool = False,
    mode: int = PRIVATE,
) -> WrittenSnapshot:
    """Write a snapshot. Raises UsageError if the file cannot be written.

    ``with_owners``: whether to find all references; None: only if finding them is quick.
    """
    heap.disclosure.contents = with_contents
    return written(path, take(heap, with_owners, with_blocks), mode)


def written(path: str, look: SnapshotWithBlocks, mode: int = PRIVATE) -> WrittenSnapshot:
    """Write a snapshot that was taken before. Raises the same errors as ``write_snapshot``."""
    size, found = write(path, look, mode), look.snapshot
    return WrittenSnapshot(
        path,
        size,
        found.time,
        len(found.ledger.ledger),
        len(found.objects.rows) if found.objects else 0,
        len(found.holes.rows) if found.holes else 0,
        None if found.owners is None else len(found.owners),
        None if found.blocks is None else sum(found.blocks.counts),
    )


def target_report(heap: Heap, with_owners: bool | None = None, with_contents: bool = False) -> HtmlPage:
    """Return the HTML page of a target. The modules that make the page are imported on use, because imports take most
    of a command's start-up time."""
    from gdbheap.report.page.target import missing_in, target_page
    from gdbheap.snapshots.overview import overview

    heap.disclosure.contents = with_contents
    found = overview(heap, with_owners)
    style = Style(rss=found.ledger.rss.bytes, private=heap.target.rss.private)
    return HtmlPage(target_page(found, style), missing_in(found), found.ledger.is_blind)


def look_report(look: SnapshotWithBlocks) -> HtmlPage:
    """Return the HTML page of a snapshot. Answers that the snapshot does not contain are named in the page's
    ``missing``.
    """
    from gdbheap.report.page.target import missing_in, target_page
    from gdbheap.snapshots.overview import overview_of_snapshot

    found = overview_of_snapshot(look.snapshot)
    style = Style(rss=found.ledger.rss.bytes, private=found.target.get("kind") == "core")
    return HtmlPage(target_page(found, style), missing_in(found))


def write_page(path: str, made: HtmlPage, mode: int = PRIVATE) -> int:
    """Write an HTML page, and return its size in bytes. Raises UsageError if the file cannot be written."""
    write_bytes(path, made.data, mode)
    return len(made.data)
