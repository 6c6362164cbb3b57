"""The text of ``heap why``: what keeps an object or a block alive, from a root down."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gdbheap.answers.accounting.paths import in_words
from gdbheap.answers.accounting.source_paths import source_path
from gdbheap.errors import one_line
from gdbheap.graph.paths import BLOCK, Path
from gdbheap.report.text.folding import NO_GAP, Gap, folded
from gdbheap.report.text.numbers import address_text
from gdbheap.report.text.style import Style
from gdbheap.report.text.tables import Column, join, table
from gdbheap.report.text.unfinished import STALE, at_least, unfinished
from gdbheap.report.words.at import maker_lines

if TYPE_CHECKING:
    from gdbheap.answers.why import Why

__all__ = ["render"]

STEPS = (Column("address"), Column("how", True), Column("type", True))
HOLDERS = (Column("address"), Column("retains"), Column("type", True))
UNCERTAIN = "The chain is not certain: a word in it that looks like a reference may be an old value."
# The most characters of a path in the first sentence. The table below it shows all steps.
LONGEST_WAY = 160


def render(answer: Why, style: Style, with_maker: bool = False) -> str:
    """Return the text of ``heap why``: what keeps the block, the chain from a root down to it, the Python expression,
    and the dominators.

    ``with_maker``: add the recorded stack that allocated the block, or a line that says that the log has none.
    """
    made = "\n".join(maker_lines(answer.made, style)) if with_maker else ""
    return join(_way(answer, style), made)


def _way(answer: Why, style: Style) -> str:
    name = f"{address_text(answer.address)} ({answer.type})"
    if not answer.rows:
        told_so = style.filled(_not_led_to(answer, name, style))
        return join(told_so, unfinished(answer.not_examined, answer.next, style))
    expression = f"As a Python expression: {answer.expression}" if answer.expression else ""
    shown = _dominators(answer, style)
    lead = "Removing any one of these would free this block:" if shown else ""
    rest = unfinished(answer.not_examined, answer.next, style)
    kept = style.filled(_kept(answer, name, style))
    return join(kept, table(STEPS, _steps(answer), style), expression, lead, shown, rest)


def _kept(answer: Why, name: str, style: Style) -> str:
    """Return sentences that say what keeps the block, and how many bytes it retains."""
    way = source_path(answer.expression or in_words(Path(list(answer.rows), None, answer.count)))
    kept = "is kept" if answer.certain else "may be kept"
    size = f"{at_least(style.bytes(answer.retained), answer.at_least)}{style.of_rss(answer.retained, answer.absent)}"
    if answer.at_most is not None:
        size = f"between {style.bytes(answer.retained)} and {style.bytes(answer.at_most)}: {STALE}"
    told = f"{name} {kept} by {one_line(way, LONGEST_WAY)}. It retains {size}."
    if answer.named_variable is not None:
        all_of = style.bytes(answer.variable_bytes)
        told = f"{told} It is the largest block of {answer.named_variable}, which holds {all_of}."
    return told if answer.certain else f"{told} {UNCERTAIN}"


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
