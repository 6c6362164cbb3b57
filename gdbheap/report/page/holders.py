"""The page's section of holders: the largest ones as a table, and all resident memory by holder as a picture."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gdbheap.report.formats.composition import MEMORY, composition
from gdbheap.report.formats.flame import flame_part
from gdbheap.report.formats.holder_tree import holder_tree
from gdbheap.report.page.html import SHARE, SIZE, Column, Section, paragraph, refused, table
from gdbheap.report.text.numbers import count_text
from gdbheap.report.words.main_holders import whole_text

if TYPE_CHECKING:
    from gdbheap.snapshots.overview import Overview
    from gdbheap.stacks import Weighted

__all__ = ["holders_section"]

ID, TITLE = "holders", "Holders of the memory"
COLUMNS = Column("share", "% of RSS", SHARE), Column("what", "what it is")


def holders_section(found: Overview, most: int) -> Section:
    """Return the section of holders: a table of the ``most`` largest ones, and a picture of all memory by holder."""
    ledger = found.ledger
    stacks = _stacks(found)
    if not stacks:
        return refused(ID, TITLE, "nothing is known about this memory")
    rss = ledger.rss.bytes or 0
    # Show resident bytes only if they are known for all rows: otherwise the column would not fit the shares.
    is_resident = all(row.resident is not None for row in ledger.holders)
    rows = [
        (row.path, row.resident if is_resident else row.bytes, None if row.resident is None else (row.resident, rss),
         whole_text(row))
        for row in ledger.holders
    ]  # fmt: skip
    columns = Column("path", "held by"), Column("bytes", "resident" if is_resident else "in use", SIZE), *COLUMNS
    body = table("holders-table", "The largest holders of the memory in use", columns, rows, most)
    what = "Resident memory" if ledger.rss.bytes is not None else "The address space"
    picture = flame_part(stacks, f"{what}, by holder", MEMORY)
    told = f"{what}, by holder: the width of a cell shows its bytes, and each cell is a part of the cell above it."
    return Section(ID, TITLE, f"{paragraph(_none(found))}{body}{paragraph(told)}<figure>{picture}</figure>\n")


def _stacks(found: Overview) -> list[Weighted]:
    """Return the cells of the picture: memory by holder or, if holders were not searched for, by type."""
    if found.holders is None:
        return list(composition(found.ledger, found.map.answer, found.places.answer))
    return list(holder_tree(found.ledger, found.holders))


def _none(found: Overview) -> str:
    """Return the sentence that says why no holder is listed; "" if a holder is listed."""
    ledger = found.ledger
    if ledger.holders:
        return ""
    if ledger.not_looked is not None:
        blocks = count_text(ledger.not_looked)
        return f"There are {blocks} blocks in use, too many to look for holders by default: --owners looks for them."
    if found.holders is None:
        return f"The holders are unknown: {found.owners.why or 'gdbheap did not look for them'}."
    return "No holder has 5 % of RSS or more."
