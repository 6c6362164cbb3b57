"""``heap why`` and ``heap refs`` for people."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gdbheap.graph.paths import BLOCK, STEPS_AT_EACH_END
from gdbheap.report.at import maker_lines
from gdbheap.report.folding import folded
from gdbheap.report.numbers import address_text, counted
from gdbheap.report.style import Style
from gdbheap.report.tables import Column, join, table

if TYPE_CHECKING:
    from gdbheap.answers.refs import Refs
    from gdbheap.answers.why import Why

__all__ = ["render", "render_refs"]

STEPS = (Column("address"), Column("how", True), Column("type", True))
HOLDERS = (Column("address"), Column("retains"), Column("type", True))
REFERRERS = (Column("address"), Column("certain", True), Column("how", True), Column("type", True))


def render(answer: Why, style: Style, with_maker: bool = False) -> str:
    """The chain from the root down, the expression, what else would be free without it, and the stack that made it
    (``with_maker``: that was looked for)."""
    made = "\n".join(maker_lines(answer.made, style)) if with_maker else ""
    return join(_way(answer, style), made)


def _way(answer: Why, style: Style) -> str:
    name = f"{address_text(answer.address)} ({answer.type})"
    if not answer.chain:
        return style.filled(f"Nothing leads to {name}: it is garbage, or lost. 'heap unreachable' lists what is.")
    rows = folded(_steps(answer), lambda row: (row[2], row[1]), _more_steps)
    told = [f"{name} retains {style.bytes(answer.retained)}{style.of_rss(answer.retained)}."]
    if answer.expression:
        told.append(f"As Python: {answer.expression}")
    if not answer.certain:
        told.append("Not all of this chain is known: a word that looks like a reference may be left over.")
    above = [[address_text(one.address), style.size(one.retained), one.type] for one in answer.dominators]
    above = folded(above, lambda row: (row[2],), lambda left, _types: ["…", f"{left:,} more", "such objects"])
    shown = table(HOLDERS, above, style) if len(above) > 1 else ""
    lead = "Without any one of these it would be free:" if shown else ""
    return join(table(STEPS, rows, style), *told, lead, shown)


def _steps(answer: Why) -> list[list[str]]:
    """A row for each step, and one for those that a long chain lacks in its middle."""
    rows = [[address_text(step.address), step.edge, step.type] for step in answer.chain]
    lacking = answer.length - len(rows)
    return (
        rows
        if lacking <= 0
        else [*rows[:STEPS_AT_EACH_END], ["…", f"{lacking:,} more steps", ""], *rows[STEPS_AT_EACH_END:]]
    )


def _more_steps(left: int, types: set[str]) -> list[str]:
    return ["…", f"{left:,} more such {'blocks' if types == {BLOCK} else 'steps'}", ""]


def render_refs(answer: Refs, style: Style) -> str:
    """A row a referrer, and how many more there are."""
    name = f"{address_text(answer.address)} ({answer.type})"
    if not answer.count:
        return style.filled(f"Nobody points to {name}.")
    rows = [[address_text(row.address), "yes" if row.exact else "no", row.edge, row.type] for row in answer.referrers]
    more = answer.count - len(rows)
    rest = f", {more:,} more than are listed" if more else ""
    referrers = counted(answer.count, "reference leads", "references lead")
    return join(table(REFERRERS, rows, style), style.filled(f"{referrers} to {name}{rest}."))
