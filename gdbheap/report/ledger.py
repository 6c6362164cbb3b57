"""``heap`` for people: the ledger of the address space as a tree, then the findings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gdbheap.answers.findings.settings import lines_to_paste, shell_line
from gdbheap.report import container, summary
from gdbheap.report.aborted import abort_lines
from gdbheap.report.findings import advice_of, text_of
from gdbheap.report.style import SEVERE, Style
from gdbheap.report.tables import SHARE, Column, join, table

if TYPE_CHECKING:
    from gdbheap.answers.findings import Finding
    from gdbheap.answers.ledger import Ledger, Line

__all__ = ["FIRST", "LAST", "advice_sentence", "commands_of", "decision", "headline", "no_findings", "render"]

FREE = ("free", "top")
NOT_LOOKED = (
    "Findings: none, and none could be looked for in the largest part of the memory, whose blocks are not walked: "
    "whether some of it could be given back is not known."
)
# In percent of RSS: what is worth more than this stands out where there are colours.
SEVERE_PERCENT = 10
FIRST, LAST = "Findings, largest first", ", doubtful ones last"
COLUMNS = (
    Column("what", True), Column("resident"), SHARE, Column("in free pages"), Column("swapped"), Column("virtual"),
)  # fmt: skip


def render(answer: Ledger, style: Style) -> str:
    """Where the memory is, in one sentence, the tree with its total, and what can be done about it."""
    ended = abort_lines(answer.abort, style)
    if not answer.ledger:
        return join(ended, style.filled(headline(answer, style)), container.render(answer.container, None, style))
    tree = _tree(answer.ledger)
    rows = [_row(line, depth, style) for line, depth in tree]
    return join(
        ended,
        style.filled(headline(answer, style)),
        table(COLUMNS, rows, style, _total(answer.ledger, style), [line.state for line, _depth in tree]),
        container.render(answer.container, answer.rss.lazy, style),
        style.filled(decision(answer, style)),
        _findings(answer, style),
    )


def _tree(lines: list[Line]) -> list[tuple[Line, int]]:
    """The lines with their depth, children after their parent, in the order in which they came."""
    children: dict[str | None, list[Line]] = {}
    for line in lines:
        children.setdefault(line.parent, []).append(line)

    def below(parent: str | None, depth: int) -> list[tuple[Line, int]]:
        return [found for line in children.pop(parent, []) for found in [(line, depth), *below(line.id, depth + 1)]]

    return below(None, 0)


def _row(line: Line, depth: int, style: Style) -> list[str]:
    name = "  " * depth + line.name
    return [
        name,
        style.size(line.resident),
        style.share_of_resident(line.resident),
        style.size(line.whole) if line.state in FREE else "",
        style.size(line.swapped),
        style.size(line.virtual),
    ]


def _sum(values: list[int | None]) -> int | None:
    """The sum, or None as soon as one of the values is not known."""
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None


def _total(lines: list[Line], style: Style) -> list[str]:
    roots = [line for line in lines if line.parent is None]
    resident = _sum([line.resident for line in roots])
    swapped = _sum([line.swapped for line in roots])
    virtual = sum(line.virtual for line in roots)
    free = _sum([line.whole for line in lines if line.state in FREE and line.id.count(".") == 1])
    return [
        "total",
        style.size(resident),
        style.share_of_resident(resident),
        *map(style.size, (free, swapped, virtual)),
    ]


def headline(answer: Ledger, style: Style) -> str:
    """RSS, and what most of it is."""
    rss = answer.rss
    if rss.bytes is None:
        return f"How much of this is resident is not known ({rss.source}); the sizes are those of the address space."
    if style.private:
        of_core = f"{style.bytes(rss.bytes)} is {rss.source}; RSS itself is in no core."
        return of_core + _largest(answer.ledger, style)
    swap = f", {style.bytes(rss.swap)} more is swapped out" if rss.swap else ""
    return f"RSS is {style.bytes(rss.bytes)} ({rss.source}){swap}.{_largest(answer.ledger, style)}"


def decision(answer: Ledger, style: Style) -> str:
    """A leak, or memory that the allocators keep? What is used and free, what can go back, why the rest stays."""
    if answer.summary is None:
        return ""
    return summary.render(answer.summary, {line.id: line.name for line in answer.ledger}, style)


def _largest(lines: list[Line], style: Style) -> str:
    """The largest line that has no children; the parts of a part do not count."""
    shown = [line for line in lines if line.parent is None or "." not in line.parent]
    parents = {line.parent for line in shown}
    leaves = [line for line in shown if line.id not in parents and line.resident]
    if not leaves:
        return ""
    most = max(leaves, key=lambda line: line.resident or 0)
    return f" The largest part is {most.name}: {style.bytes(most.resident)}{style.resident_of_rss(most.resident)}."


def no_findings(answer: Ledger) -> str:
    """What is said where there are none."""
    if answer.looks_past:
        return NOT_LOOKED
    if answer.rss.bytes is None:
        return "Findings: none, as it is not known what is resident. 'heap holes' and 'heap pins' tell what is free."
    return "Findings: none. Nothing here stands out as memory that could be given back."


def _findings(answer: Ledger, style: Style) -> str:
    findings = answer.findings
    if not findings:
        return style.filled(no_findings(answer))
    lines = [style.heading(FIRST + LAST * any(finding.doubtful for finding in findings))]
    for number, finding in enumerate(findings, 1):
        worth = f"{number}. {style.bytes(finding.bytes)}{style.resident_of_rss(finding.bytes)}"
        text = style.filled(f"{worth}: {text_of(finding)}.")
        # Where a narrow terminal breaks it in two it stays plain.
        is_whole = text.startswith(worth)
        lines.append(_weighed(worth, finding, style) + text[len(worth) :] if is_whole else text)
        lines.append(style.filled(f"   {advice_sentence(advice_of(finding))}"))
        lines += [f"   $ {line}" for line in commands_of(finding)]
    return "\n".join(lines)


def _weighed(worth: str, finding: Finding, style: Style) -> str:
    """How much a finding is worth, as plainly as that is much: what may be intended does not stand out."""
    if finding.doubtful:
        return worth
    is_severe = style.rss is not None and 100 * finding.bytes >= SEVERE_PERCENT * style.rss
    return style.coloured(worth, SEVERE) if is_severe else style.heading(worth)


# Settings are shown as a shell takes them; the other forms are in the JSON and in docs/findings.md.
ELSEWHERE = "# or: systemd Environment=, Docker -e, Kubernetes env:"


def commands_of(finding: Finding) -> list[str]:
    """What can be pasted into a shell."""
    settings = lines_to_paste(finding.environment)
    own = [line for line in finding.commands if line not in settings]
    return own + [f"{shell_line(*setting)}  {ELSEWHERE}" for setting in finding.environment.items()]


def advice_sentence(advice: str) -> str:
    """With a capital letter, unless it begins with a name: those of functions are written as they are."""
    first = advice.split()[0]
    is_word = first.isalpha() and first.islower()
    return f"{advice[0].upper() if is_word else advice[0]}{advice[1:]}."
