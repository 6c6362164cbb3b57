"""The text of ``heap``: the verdict, the holders and the findings, then the table of the address space as a tree."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from gdbheap.findings.holder.rule import CODE
from gdbheap.findings.settings import lines_to_paste, shell_line
from gdbheap.first_page.main_holders import most_is_imported, seconds_for
from gdbheap.report.text.numbers import duration_text, size_text, sum_or_none
from gdbheap.report.text.style import GDB_PROMPT, SEVERE, SHELL_PROMPT, Style
from gdbheap.report.text.tables import SHARE, Column, join, table
from gdbheap.report.text.unfinished import unfinished
from gdbheap.report.words import container, main_holders, summary
from gdbheap.report.words.aborted import abort_lines
from gdbheap.report.words.findings import advice_of, numbers_of, text_of
from gdbheap.report.words.holder_changes import growth_sentence, signed
from gdbheap.report.words.verdict import gave_back_much, verdict
from gdbheap.text import IN_GDB

if TYPE_CHECKING:
    from gdbheap.answers.holder_change import Since
    from gdbheap.findings.finding import Finding
    from gdbheap.findings.holder.rule import MainHolder
    from gdbheap.first_page.ledger import Ledger, Line

__all__ = ["FIRST", "advice_sentence", "commands_of", "decision", "heading_of", "no_findings", "render"]

NOT_LOOKED = (
    "Findings: none. gdbheap cannot list the blocks in the largest part of the memory, so some of this memory may be "
    "reclaimable."
)
LAZILY_FREED = "lazily-freed"
# Less free memory than this is not worth a word.
MIN_RECLAIMABLE = 1 << 20
LAZY = "Findings: none. {} was freed lazily (MADV_FREE): the kernel takes these pages when memory is short."
# From this percentage of RSS on, a finding is highlighted (if the terminal has colours).
SEVERE_PERCENT = 10
MIN_PERCENT_SHOWN = 1
WHAT_GREW = (
    "the largest holder may not be the holder that grows ('heap snapshot' now and 'heap diff' later show what grows)"
)
# If RSS changed by at least this many bytes while the holders were searched, a sentence says so.
MIN_CHANGE = 1 << 20
FIRST, GAINS_FIRST = "Findings, largest first", "Findings, certain savings first"
COLUMNS = (
    Column("what", True), Column("resident"), SHARE, Column("reclaimable"), Column("swapped"), Column("virtual"),
)  # fmt: skip


def render(answer: Ledger, style: Style, whole: bool = False) -> str:
    """Return the text of the answer.

    It begins with the reason for the process's end, the verdict, the holders, the findings and the next commands. The
    ledger follows as a tree with its total, then sentences about free memory and the container. ``whole``: include
    lines with next to no memory.
    """
    ended = abort_lines(answer.abort, style)
    if not answer.ledger:
        return join(ended, style.filled(verdict(answer, style)), container.render(answer.container, None, style))
    return join(
        ended,
        style.filled(f"{verdict(answer, style)} {_meanwhile(answer, style)}".rstrip()),
        style.filled(_since(answer.since, style)),
        _holders(answer, style),
        _findings(answer, style),
        _next(answer),
        _books(answer, style, whole),
        style.filled(decision(answer, style)),
        container.render(answer.container, None if _says_lazy(answer) else answer.rss.lazily_freed, style, whole),
    )


def _books(answer: Ledger, style: Style, whole: bool) -> str:
    """Return the ledger, with its lines indented as a tree. Unless ``whole``, lines below MIN_PERCENT_SHOWN of RSS are
    folded into one row.
    """
    tree = _tree(answer.ledger)
    rss = answer.rss.bytes
    folded = [] if whole or not rss else [line for line, _depth in tree if not _is_shown(line, rss)]
    rows = [_row(line, depth, style) for line, depth in tree if line not in folded]
    states = [line.state for line, _depth in tree if line not in folded]
    roots = [line for line in folded if line.parent is None]
    if roots:
        resident, swapped = (sum_or_none([getattr(line, name) for line in roots]) for name in ("resident", "swapped"))
        virtual = sum(line.virtual for line in roots)
        more = f"{len(roots)} more below {MIN_PERCENT_SHOWN} %"
        rows.append(
            [more, style.size(resident), style.share_of_resident(resident), "", *map(style.size, (swapped, virtual))]
        )
        states.append(None)
    return table(COLUMNS, rows, style, _total(answer.ledger, style), states)


def _is_shown(line: Line, rss: int) -> bool:
    return line.resident is None or 100 * line.resident >= MIN_PERCENT_SHOWN * rss


def _since(found: Since | None, style: Style) -> str:
    """Return the growth since an earlier snapshot, as text; "" if no snapshot was compared."""
    if found is None:
        return ""
    rss = f"RSS {signed(found.rss, style)}" if found.rss is not None else "the change of RSS is unknown"
    told = growth_sentence(found.holders, found.in_use, found.free, style)
    return f"Since the snapshot ({duration_text(max(found.seconds, 0))} ago): {rss}. {told}".rstrip()


def _meanwhile(answer: Ledger, style: Style) -> str:
    """Return a text that says how RSS has changed since the process was read; "" if it changed little."""
    found, rss = answer.meanwhile, answer.rss.bytes or 0
    if found is None or abs(found.rss) < max(MIN_CHANGE, MIN_PERCENT_SHOWN * rss // 100):
        return ""
    how = "grew" if found.rss > 0 else "shrank"
    told = f"RSS {how} by {style.bytes(abs(found.rss))} in the {duration_text(found.seconds)} after this reading"
    # Name the command that shows what grew. Otherwise readers would take a large holder, even one that does not grow,
    # for the cause.
    return f"{told}: {style.named(WHAT_GREW)}." if found.rss > 0 else f"{told}."


def _next(answer: Ledger) -> str:
    return "\n".join(["Next", *(f"  {prompted(line)}" for line in answer.next)]) if answer.next else ""


def _place(row: MainHolder) -> tuple[bool, int]:
    """Return a key that sorts holders: the largest first, but code last, because the kernel can drop it."""
    return row.kind == CODE, -(row.bytes if row.resident is None else row.resident)


def _holders(answer: Ledger, style: Style) -> str:
    imported = [answer.imported] if answer.imported is not None else []
    others = [answer.others] if answer.others is not None else []
    rows = [*sorted([*answer.holders, *imported], key=_place), *others]
    held = main_holders.render(rows, style)
    if answer.not_looked is None:
        return join(held, unfinished(answer.not_examined, [], style))
    cost = (
        f"gdbheap needs about {seconds_for(answer.not_looked)} s of CPU time to follow the references of "
        f"{answer.not_looked:,} blocks; the program keeps running."
    )
    if not answer.not_examined:
        return join(held, style.filled(f"Holders: not searched for. {cost}"))
    return join(held, style.filled(f"Not examined: {style.bytes(answer.not_examined)}. {cost}"))


def _tree(lines: list[Line]) -> list[tuple[Line, int]]:
    """Return the lines with their depth in the tree. Children follow their parent, otherwise the order is kept."""
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
        style.size(_reclaimable(line)) if line.is_free else "",
        style.size(line.swapped),
        style.size(line.virtual),
    ]


def _reclaimable(line: Line) -> int | None:
    """Return the bytes of free memory that malloc_trim() or a similar call would return. For old snapshots, return the
    bytes of completely free pages.
    """
    return line.whole if line.reclaimable is None else line.reclaimable


def _all_reclaimable(lines: list[Line]) -> int | None:
    return sum_or_none([_reclaimable(line) for line in lines if line.is_free and line.id.count(".") == 1])


def _total(lines: list[Line], style: Style) -> list[str]:
    roots = [line for line in lines if line.parent is None]
    resident = sum_or_none([line.resident for line in roots])
    swapped = sum_or_none([line.swapped for line in roots])
    virtual = sum(line.virtual for line in roots)
    free = _all_reclaimable(lines)
    return [
        "total",
        style.size(resident),
        style.share_of_resident(resident),
        *map(style.size, (free, swapped, virtual)),
    ]


def decision(answer: Ledger, style: Style) -> str:
    """Return sentences about used memory, free memory, memory that can be returned, and the reasons why other free
    memory cannot be returned.

    The sentences show whether there is a leak, or whether allocators keep the memory.
    """
    if answer.summary is None:
        return ""
    return summary.render(answer.summary, {line.id: line.name for line in answer.ledger}, style)


def no_findings(answer: Ledger) -> str:
    """Return the sentence to print if there are no findings. It says why there are none, and how much memory can be
    reclaimed.
    """
    if answer.looks_past:
        return NOT_LOOKED
    if _says_lazy(answer):
        style = Style(rss=answer.rss.bytes)
        return LAZY.format(f"{style.bytes(answer.rss.lazily_freed)}{style.of_rss(answer.rss.lazily_freed)}")
    if answer.rss.bytes is None:
        return "Findings: none, because resident memory is unknown. 'heap holes' and 'heap pins' show free memory."
    if answer.imported is not None and most_is_imported(answer.imported, answer.rss.bytes):
        size = answer.imported.bytes if answer.imported.resident is None else answer.imported.resident
        return (
            f"Findings: none, but the interpreter and imported packages hold {size_text(size)}. 'heap pyobjects' lists "
            "objects by type."
        )
    # The reason for the process's end is already stated above.
    if answer.abort is not None:
        return "Findings about memory use: none."
    free = _all_reclaimable(answer.ledger) or 0
    if free >= MIN_RECLAIMABLE:
        return f"Findings: none. {size_text(free)} can be reclaimed, which is too little for a finding."
    return "Findings: none. No memory to reclaim."


def _says_lazy(answer: Ledger) -> bool:
    """Return whether the printed text already mentions memory that MADV_FREE freed.

    The text is the list of findings or, without findings, the sentence that replaces the list.
    """
    if answer.findings:
        return any(finding.id == LAZILY_FREED for finding in answer.findings)
    return not answer.looks_past and gave_back_much(answer)


def _findings(answer: Ledger, style: Style) -> str:
    findings = answer.findings
    if not findings:
        return style.filled(no_findings(answer))
    lines, numbers = [style.heading(heading_of(findings))], numbers_of(findings)
    for number, finding in enumerate(findings, 1):
        worth = f"{number}. {style.bytes(finding.bytes)}{style.resident_of_rss(finding.bytes)}"
        text = style.filled(f"{worth}: {text_of(finding, numbers)}.")
        # Highlight the size only if it is whole on the first line: a narrow terminal may break it in two.
        is_whole = text.startswith(worth)
        lines.append(_weighed(worth, finding, style) + text[len(worth) :] if is_whole else text)
        lines.append(style.filled(f"   {advice_sentence(advice_of(finding))}"))
        lines += [f"   {prompted(line)}" for line in commands_of(finding)]
    return "\n".join(lines)


def heading_of(findings: Sequence[Finding]) -> str:
    """Return the heading of a list of findings, which says how the findings are ordered."""
    sizes = [finding.bytes for finding in findings]
    return FIRST if sizes == sorted(sizes, reverse=True) else GAINS_FIRST


def _weighed(worth: str, finding: Finding, style: Style) -> str:
    """Return the size of a finding. A large size is highlighted, unless the finding may be a false alarm."""
    if finding.doubtful:
        return worth
    is_severe = style.rss is not None and 100 * finding.bytes >= SEVERE_PERCENT * style.rss
    return style.coloured(worth, SEVERE) if is_severe else style.heading(worth)


# Settings are shown as for a shell. Their other forms are in the JSON and in docs/findings.md.
ELSEWHERE = "# or: systemd Environment=, Docker -e, Kubernetes env:"


def prompted(line: str) -> str:
    """Return a line to paste, after the prompt of the program in which it is typed: gdb or a shell."""
    is_of_gdb = line.partition(" ")[0] == IN_GDB
    return f"{GDB_PROMPT if is_of_gdb else SHELL_PROMPT}{line}"


def commands_of(finding: Finding) -> list[str]:
    """Return the lines of a finding that can be pasted into a shell."""
    settings = lines_to_paste(finding.environment)
    own = [line for line in finding.commands if line not in settings]
    return own + [f"{shell_line(*setting)}  {ELSEWHERE}" for setting in finding.environment.items()]


def advice_sentence(advice: str) -> str:
    """Return advice as a sentence: with a capital letter, unless it begins with a name, such as a function's."""
    first = advice.split()[0]
    is_word = first.isalpha() and first.islower()
    return f"{advice[0].upper() if is_word else advice[0]}{advice[1:]}."
