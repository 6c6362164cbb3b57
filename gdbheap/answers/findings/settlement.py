"""The same bytes never make two findings: of two that speak of the same memory the more specific one has it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cached_property

from gdbheap.answers.findings.finding import Claim, Evidence, Finding
from gdbheap.answers.findings.settings import lines_to_paste
from gdbheap.target.ranges import Ranges, joined, subtract
from gdbheap.words import size_text

# The most specific first: what says why the memory is there before what only says that it is. A finding that is not
# named here comes last.
ORDER = (
    "huge-pages", "growing-buffers", "large-chunks", "main-top", "thread-tops", "free-chunks", "pymalloc-arenas",
    "runtime-", "other-held", "other-allocator", "stacks", "mapped-memory", "shared-memory", "mapped-files",
)  # fmt: skip
# What a container keeps may have room of its own, and what nobody reaches too.
MAY_LIE_IN = {"slack": ("leak-like", "cycles"), "free-lists": (), "cycles": ()}


@dataclass
class _Settled:
    """A finding that stays, and its memory."""

    finding: Finding
    _memory: Callable[[], Ranges]

    @cached_property
    def memory(self) -> Ranges:
        return joined(sorted(self._memory()))


def settle(evidence: Evidence, found: Iterable[Finding | Claim]) -> list[Finding]:
    """The findings without bytes that a more specific one speaks of; one that has not enough left goes, and its remedy
    becomes an alternative in the advice of the one that has its bytes. Certain ones first, then the largest."""
    kept: list[_Settled] = []
    for each in sorted(found, key=_rank):
        claim = each if isinstance(each, Claim) else Claim(each, list)
        _add(evidence, kept, claim)
    findings = [row.finding for row in kept]
    names = {finding.id for finding in findings}
    return sorted((_finished(finding, names) for finding in findings), key=lambda finding: finding.rank)


def _rank(each: Finding | Claim) -> int:
    name = each.finding.id if isinstance(each, Claim) else each.id
    return next((place for place, start in enumerate(ORDER) if name.startswith(start)), len(ORDER))


def _add(evidence: Evidence, kept: list[_Settled], claim: Claim) -> None:
    row = _Settled(claim.finding, claim.memory)
    shared = [(min(other.finding.bytes, _common(evidence, row, other)), other) for other in kept]
    taken = sum(size for size, _other in shared)
    if not taken:
        kept.append(row)
        return
    most = max(shared, key=lambda pair: pair[0])[1]
    left = claim.finding.bytes - taken
    if evidence.worth(left):
        text = f"{claim.finding.text}; {size_text(taken)} more of it is what {most.finding.id} is about"
        row.finding = replace(claim.finding, bytes=left, text=text)
        kept.append(row)
    elif claim.remedy:
        most.finding = replace(most.finding, advice=f"{most.finding.advice}; or {claim.remedy}")


def _common(evidence: Evidence, one: _Settled, two: _Settled) -> int:
    """The resident bytes of which both speak."""
    pages = evidence.heap.target.pages
    if pages is None or not two.memory or not one.memory:
        return 0
    both = subtract(one.memory, subtract(one.memory, two.memory))
    return sum(pages.count(start, end)[0] for start, end in both)


def _finished(finding: Finding, names: set[str]) -> Finding:
    """With its settings as lines to paste, and with the finding in whose bytes some of its own may lie."""
    within = next((name for name in MAY_LIE_IN.get(finding.id, ()) if name in names), None)
    text = f"{finding.text}; some of it may be what {within} is about" if within else finding.text
    commands = [*finding.commands, *lines_to_paste(finding.environment)]
    return replace(finding, text=text, commands=commands, within=within)
