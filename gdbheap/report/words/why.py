"""The text of ``heap why`` and ``heap refs``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gdbheap.graph.paths import BLOCK
from gdbheap.report.text.folding import NO_GAP, Gap, folded
from gdbheap.report.text.numbers import address_text, counted
from gdbheap.report.text.style import Style
from gdbheap.report.text.tables import Column, join, table
from gdbheap.report.text.unfinished import at_least, unfinished
from gdbheap.report.words.at import maker_lines

if TYPE_CHECKING:
    from gdbheap.answers.refs import Refs
    from gdbheap.answers.why import Why

__all__ = ["render", "render_refs"]

STEPS = (Column("address"), Column("how", True), Column("type", True))
HOLDERS = (Column("address"), Column("retains"), Column("type", True))
REFERRERS = (Column("address"), Column("certain", True), Column("how", True), Column("type", True))


def render(answer: Why, style: Style, with_maker: bool = False) -> str:
    """Return the text of ``heap why``: the chain from a root down to the block, the Python expression, and the
    dominators.

    ``with_maker``: add the recorded stack that allocated the block, or a line that says that the log has none.
    """
    made = "\n".join(maker_lines(answer.made, style)) if with_maker else ""
    return join(_way(answer, style), made)


def _way(answer: Why, style: Style) -> str:
    name = f"{address_text(answer.address)} ({answer.type})"
    if not answer.rows:
        told_so = style.filled(_not_led_to(answer, name, style))
        return join(told_so, unfinished(answer.not_examined, answer.next, style))
    size = at_least(style.bytes(answer.retained), answer.at_least)
    told = [f"{name} retains {size}{style.of_rss(answer.retained, answer.absent)}."]
    if answer.expression:
        told.append(f"As a Python expression: {answer.expression}")
    if not answer.certain:
        told.append("This chain is not certain: a word in it that looks like a reference may be an old value.")
    shown = _dominators(answer, style)
    lead = "Removing any one of these would free this block:" if shown else ""
    rest = unfinished(answer.not_examined, answer.next, style)
    return join(table(STEPS, _steps(answer), style), *told, lead, shown, rest)


def _not_led_to(answer: Why, name: str, style: Style) -> str:
    if answer.lacking:
        return (
            f"Nothing in this core points to {name}. The core lacks {style.bytes(answer.lacking)} of the program's "
            "memory, and the missing memory may point to it."
        )
    if answer.at_least:
        return f"Nothing in the memory that was read points to {name}."
    return (
        f"Nothing reachable points to {name}: the block is garbage, or lost. 'heap unreachable' lists unreachable "
        "memory."
    )


def _steps(answer: Why) -> list[list[str]]:
    rows = [[address_text(step.address), step.edge, step.type] for step in answer.rows]
    return folded(rows, lambda row: (row[2], row[1]), _more_steps, _gap(len(rows), answer.count))


def _dominators(answer: Why, style: Style) -> str:
    rows = [
        [address_text(one.address), at_least(style.size(one.retained), answer.at_least), one.type]
        for one in answer.dominators
    ]
    if len(rows) < 2:
        return ""
    gap = _gap(len(rows), answer.dominator_count)
    return table(HOLDERS, folded(rows, lambda row: (row[2],), _more_holders, gap), style)


def _gap(shown: int, count: int) -> Gap:
    """Return the gap in the middle of a chain of ``count`` steps, if only ``shown`` steps at its ends are shown."""
    return Gap(shown // 2, count - shown) if count > shown else NO_GAP


def _more_steps(left: int, types: set[str]) -> list[str]:
    kind = "such blocks" if types == {BLOCK} else "such steps" if types else "steps"
    return ["…", f"{left:,} more {kind}", ""]


def _more_holders(left: int, types: set[str]) -> list[str]:
    return ["…", f"{left:,} more", "such objects" if types else "objects"]


def render_refs(answer: Refs, style: Style) -> str:
    """Return the text of ``heap refs``: a row for each referrer, and how many more there are."""
    name = f"{address_text(answer.address)} ({answer.type})"
    if not answer.count:
        return style.filled(f"Nothing points to {name}.")
    rows = [[address_text(row.address), "yes" if row.certain else "no", row.edge, row.type] for row in answer.rows]
    more = answer.count - len(rows)
    rest = f"; {more:,} of them are not listed" if more else ""
    referrers = counted(answer.count, "reference points", "references point")
    return join(style.filled(f"{referrers} to {name}{rest}."), table(REFERRERS, rows, style))
