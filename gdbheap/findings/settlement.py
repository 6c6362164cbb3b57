"""Make sure that no byte counts in two findings. If two findings are about the same memory, the more specific one
counts its bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import takewhile

from gdbheap.findings.finding import Evidence, Finding, FindingClaim
from gdbheap.findings.holder.rule import is_room_of
from gdbheap.findings.settings import lines_to_paste
from gdbheap.targets.ranges import Ranges, joined, subtract

# The most specific first: findings that explain why memory is there come before findings that only state its size. A
# finding that is not in this list comes last.
ORDER = (
    "huge-pages", "sparse-huge-pages", "growing-buffers", "large-chunks", "main-top", "thread-tops", "free-chunks",
    "pymalloc-arenas", "mimalloc-empty", "jemalloc-unused", "tcmalloc-unused", "musl-mappings", "cached-",
    "fragmented-", "jemalloc-arenas", "runtime-", "other-held", "other-allocator", "stacks", "mapped-memory",
    "shared-memory", "mapped-files",
)  # fmt: skip
# Kinds of memory in use: objects of Python and blocks of C code, each by what keeps it alive.
HELD, BY_CYCLES, BY_REFERENCES, LOST = KEPT = ("held", "in cycles", "by lost references", "lost")
OBJECTS = frozenset(f"objects {how}" for how in KEPT)
BLOCKS = frozenset(f"blocks {how}" for how in KEPT)
FREED, TRACES, CONTEXTS, STACKS, MAPPED = ("freed objects", "traces", "memory contexts", "stacks", "mapped memory")


def _kept(how: str) -> frozenset[str]:
    return frozenset((f"objects {how}", f"blocks {how}"))


# The finding about a holder, such as a variable. It may include the memory of many other findings.
HOLDER = "holder"
# The kinds of memory that each finding counts. Two findings that have a kind in common may count the same bytes; the
# one that comes later here then names the other. The bytes of a finding without a kind are known by their addresses:
# such findings share no bytes.
#
# Objects and buffers of each kind may be among the few blocks that pin pages and arenas. malloc_trim(0) does not return
# these pages, so no other finding counts them.
COUNTED: dict[str, frozenset[str]] = {
    **dict.fromkeys(("pymalloc-arenas", "musl-mappings", "pinned-pages"), OBJECTS | BLOCKS | {FREED}),
    HOLDER: _kept(HELD) | {TRACES, CONTEXTS, STACKS, MAPPED},
    "garbage-list": _kept(HELD),
    **dict.fromkeys(("cycles", "uncollectable-cycles"), _kept(BY_CYCLES)),
    "lost-references": _kept(BY_REFERENCES),
    "lost-blocks": _kept(LOST),
    "leak-like": OBJECTS,
    "free-lists": frozenset((FREED,)),
    "tracemalloc": frozenset((TRACES,)),
    "postgresql-context": frozenset((CONTEXTS,)),
    "stacks": frozenset((STACKS,)),
    **dict.fromkeys(("other-held", "mapped-memory", "shared-memory", "mapped-files"), frozenset((MAPPED,))),
    "slack": OBJECTS,
    "capacity": BLOCKS,
    "small-views": OBJECTS,
    "equal-strings": OBJECTS,
    "sparse-huge-pages": OBJECTS | BLOCKS,
    **dict.fromkeys(
        (
            "huge-pages", "growing-buffers", "large-chunks", "main-top", "thread-tops", "free-chunks", "mimalloc-empty",
            "jemalloc-unused", "tcmalloc-unused", "jemalloc-arenas", "cached-*", "fragmented-*", "runtime-*",
            "other-allocator", "lazily-freed", "locked",
        ),
        frozenset(),
    ),
}  # fmt: skip
# The findings that pin memory are named last.
PINNED = ("pymalloc-arenas", "musl-mappings", "pinned-pages")
# These findings name no other finding, because they only say who holds the bytes, or which free bytes stay.
NAME_NONE = (HOLDER, *PINNED)
# Findings about mappings claim their ranges from one another, so they share bytes only with a holder.
BY_RANGES = frozenset((MAPPED,))
# A certain gain of at least 1/MIN_GAIN of a holder's bytes is listed before the holder.
MIN_GAIN = 4
# These findings say when memory was allocated, or which other process counts it too, so they may overlap all other
# findings.
OF_ALL = ("growing", "after-fork")


class _SettledFinding:
    """A finding that stays in the list, with its memory.

    ``memory``: the ranges that may contain its bytes. ``own``: the first of these ranges, up to as many resident bytes
    as the finding has. They leave out the ``own`` ranges of the findings in ``before``."""

    def __init__(self, evidence: Evidence, claim: FindingClaim, before: list[_SettledFinding]) -> None:
        self.finding = claim.finding
        self._evidence, self._memory, self._before = evidence, claim.memory, before

    @cached_property
    def memory(self) -> Ranges:
        return joined(sorted(self._memory()))

    @cached_property
    def own(self) -> Ranges:
        taken = sorted(pair for other in self._before for pair in other.own)
        return _first(self._evidence, subtract(self.memory, taken), self.finding.bytes)


def settle(evidence: Evidence, found: Iterable[Finding | FindingClaim]) -> list[Finding]:
    """Return the findings, the largest first. Bytes that also belong to a more specific finding count only there.

    A finding with too few bytes left is dropped. If the dropped finding has a remedy, it becomes an alternative of the
    finding with most of its bytes.
    """
    kept: list[_SettledFinding] = []
    for each in sorted(found, key=_rank):
        claim = each if isinstance(each, FindingClaim) else FindingClaim(each, list)
        _add(evidence, kept, claim)
    finished = [_finished(row.finding) for row in kept]
    return ordered(placed(finished))


def ordered(findings: Iterable[Finding]) -> list[Finding]:
    """Return the findings by rank, the largest first, with one exception.

    A certain finding that would free at least a quarter of a holder's bytes precedes the finding about this holder."""
    rows = sorted(findings, key=lambda finding: finding.rank)
    found: list[Finding] = []
    for place, row in enumerate(rows):
        gains = [other for other in rows[place + 1 :] if _gains_of(other, row)] if row.id == HOLDER else []
        found += [one for one in [*gains, row] if one not in found]
    return found


def _gains_of(finding: Finding, holder: Finding) -> bool:
    is_sure = not finding.rank[0] and MIN_GAIN * finding.bytes >= holder.bytes
    return is_sure and is_room_of(finding.figures, holder.figures)


def placed(findings: Sequence[Finding]) -> list[Finding]:
    """Return the findings in the same order, each with the ids of other findings that may include some of its bytes.

    Two rules avoid repetition. If a holder's finding and a more specific one are about the same memory, only the
    holder's finding names the other one. A finding whose memory belongs to a holder without a finding does not name the
    finding ``holder``."""
    names = [finding.id for finding in findings]
    same = next((_same(finding) for finding in findings if finding.id == HOLDER), None)
    found = [
        [
            other
            for other in _others(finding.id, names)
            if other != HOLDER or not (finding.id == same or getattr(finding.figures, "apart", False))
        ]
        + [name for name in [_same(finding)] if name is not None]
        for finding in findings
    ]
    return [
        replace(finding, within=others[0] if others else None, also_within=others[1:])
        for finding, others in zip(findings, found)
    ]


def _same(finding: Finding) -> str | None:
    """Return the id of the more specific finding about the same memory as a holder's finding; None if there is none."""
    found: str | None = getattr(finding.figures, "same", None)
    return found


def _others(name: str, names: Sequence[str]) -> list[str]:
    if name in OF_ALL:
        return [other for other in dict.fromkeys(names) if other not in OF_ALL]
    if name in NAME_NONE or name not in COUNTED:
        return []
    own = COUNTED[name]
    before = takewhile(lambda other: other != name, COUNTED)
    found = [other for other in before if other in names and own & COUNTED[other]]
    if own & BY_RANGES:
        found = [other for other in found if other == HOLDER]
    return sorted(found, key=lambda other: (other != HOLDER, other in PINNED))


def _rank(each: Finding | FindingClaim) -> int:
    name = each.finding.id if isinstance(each, FindingClaim) else each.id
    return next((place for place, start in enumerate(ORDER) if name.startswith(start)), len(ORDER))


def _add(evidence: Evidence, kept: list[_SettledFinding], claim: FindingClaim) -> None:
    row = _SettledFinding(evidence, claim, list(kept))
    shared = [(size, other) for other in kept if (size := evidence.resident_of(_both(row.memory, other.own)))]
    if not shared:
        kept.append(row)
        return
    shared.sort(key=lambda pair: -pair[0])
    left = claim.finding.bytes - sum(size for size, _other in shared)
    if evidence.worth(left):
        row.finding = replace(claim.finding, bytes=left, shared=[(other.finding.id, size) for size, other in shared])
        kept.append(row)
    else:
        _give_remedy(shared[0][1], claim)


def _both(one: Ranges, two: Ranges) -> Ranges:
    return subtract(one, subtract(one, two))


def _first(evidence: Evidence, ranges: Ranges, size: int) -> Ranges:
    """Return the first part of the ranges, up to ``size`` resident bytes."""
    found: Ranges = []
    for start, end in ranges:
        there = evidence.resident_of([(start, end)])
        if there > size:
            return [*found, (start, _cut(evidence, start, end, size))]
        found.append((start, end))
        size -= there
    return found


def _cut(evidence: Evidence, start: int, end: int, size: int) -> int:
    """Return the page boundary up to which [start, end) has at most ``size`` resident bytes."""
    page = evidence.heap.target.machine.page
    low, high = 0, (end - start) // page
    while low < high:
        middle = (low + high + 1) // 2
        is_more = evidence.resident_of([(start, start + middle * page)]) > size
        low, high = (low, middle - 1) if is_more else (middle, high)
    return start + low * page


def _give_remedy(other: _SettledFinding, claim: FindingClaim) -> None:
    """Add the remedy of a dropped finding to the finding that has its bytes, unless that finding advises the same
    settings.
    """
    finding, gone = other.finding, claim.finding
    is_advised = any(finding.environment.get(name) == value for name, value in gone.environment.items())
    if claim.has_remedy and not is_advised:
        commands = [*finding.commands, *(line for line in gone.commands if line not in finding.commands)]
        other.finding = replace(finding, alternatives=[*finding.alternatives, gone], commands=commands)


def _finished(finding: Finding) -> Finding:
    """Return the finding with its settings as lines to paste."""
    return replace(finding, commands=[*finding.commands, *lines_to_paste(finding.environment)])
