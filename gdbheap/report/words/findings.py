"""Format findings and their advice. The texts for each kind of finding are in ``words.py``, next to its ``rule.py``."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType
from typing import Any

from gdbheap.dataclass import dataclass
from gdbheap.findings.after_fork import words as after_fork
from gdbheap.findings.cached import words as cached
from gdbheap.findings.capacity import words as capacity
from gdbheap.findings.contexts import words as contexts
from gdbheap.findings.cycles import words as cycles
from gdbheap.findings.equal_strings import words as equal_strings
from gdbheap.findings.finding import Finding
from gdbheap.findings.fragmented import words as fragmented
from gdbheap.findings.free_chunks import words as free_chunks
from gdbheap.findings.free_lists import words as free_lists
from gdbheap.findings.garbage_list import words as garbage_list
from gdbheap.findings.growing import words as growing
from gdbheap.findings.growing_buffers import words as growing_buffers
from gdbheap.findings.holder import words as holder
from gdbheap.findings.huge_pages import words as huge_pages
from gdbheap.findings.jemalloc_arenas import words as jemalloc_arenas
from gdbheap.findings.jemalloc_unused import words as jemalloc_unused
from gdbheap.findings.large_chunks import words as large_chunks
from gdbheap.findings.lazily_freed import words as lazily_freed
from gdbheap.findings.leak_like import words as leak_like
from gdbheap.findings.locked import words as locked
from gdbheap.findings.lost_blocks import words as lost_blocks
from gdbheap.findings.lost_references import words as lost_references
from gdbheap.findings.main_top import words as main_top
from gdbheap.findings.mappings import words as mappings
from gdbheap.findings.mimalloc_empty import words as mimalloc_empty
from gdbheap.findings.musl_mappings import words as musl_mappings
from gdbheap.findings.other_allocator import words as other_allocator
from gdbheap.findings.other_held import words as other_held
from gdbheap.findings.pinned_pages import words as pinned_pages
from gdbheap.findings.pymalloc_arenas import words as pymalloc_arenas
from gdbheap.findings.runtimes import words as runtimes
from gdbheap.findings.slack import words as slack
from gdbheap.findings.small_views import words as small_views
from gdbheap.findings.sparse_huge_pages import words as sparse_huge_pages
from gdbheap.findings.stacks import words as stacks
from gdbheap.findings.tcmalloc_unused import words as tcmalloc_unused
from gdbheap.findings.thread_tops import words as thread_tops
from gdbheap.findings.tracemalloc import words as tracemalloc
from gdbheap.findings.uncollectable_cycles import words as uncollectable_cycles
from gdbheap.report.text.numbers import listed, size_text
from gdbheap.report.words.finding_words import Words
from gdbheap.text import printable_record

__all__ = [
    "WORDS",
    "FindingKeys",
    "Numbers",
    "advice_of",
    "advice_or_none",
    "keys_of",
    "numbers_of",
    "text_of",
    "text_or_none",
    "words_of",
]

FILES = (
    after_fork, cached, capacity, contexts, cycles, equal_strings, fragmented, free_chunks, free_lists, garbage_list,
    growing, growing_buffers, holder, huge_pages, jemalloc_arenas, jemalloc_unused, large_chunks, lazily_freed,
    leak_like, locked, lost_blocks, lost_references, main_top, mappings, mimalloc_empty, musl_mappings, other_allocator,
    other_held, pinned_pages, pymalloc_arenas, runtimes, slack, small_views, sparse_huge_pages, stacks, tcmalloc_unused,
    thread_tops, tracemalloc, uncollectable_cycles,
)  # fmt: skip
Numbers = Mapping[str, Sequence[int]]
"""The positions of findings in the list that the reader sees, by the findings' id, counted from 1. Empty if there is no
list. Several findings may have the same id.
"""
WORDS: dict[type[Any], Words[Any]] = {file.WORDS.figures: file.WORDS for file in FILES}


@dataclass(frozen=True)
class FindingKeys:
    """The keys of a finding in the JSON document, including its text and advice."""

    id: str
    bytes: int
    text: str
    advice: str
    figures: dict[str, int]
    commands: list[str]
    environment: dict[str, str]
    within: str | None
    is_doubtful: bool


def numbers_of(findings: Sequence[Finding]) -> Numbers:
    """Return the positions of these findings in the list, by the findings' id, counted from 1."""
    found: defaultdict[str, list[int]] = defaultdict(list)
    for number, finding in enumerate(findings, 1):
        found[finding.id].append(number)
    return found


def text_of(finding: Finding, numbers: Numbers = MappingProxyType({})) -> str:
    """Return the text of a finding, which describes the memory that was found.

    The text refers to other findings by their ``numbers``, or else by their ids. Raises KeyError if the text needs a
    figure that the finding lacks, because it comes from an older file.
    """
    text: str = _words(finding).text(printable_record(finding.figures))
    return ". ".join([text, *_shared(finding.shared, numbers), *_within(finding, numbers)])


def advice_of(finding: Finding) -> str:
    """Return the advice of a finding, its alternatives last. Raises KeyError if the advice needs a figure that the
    finding lacks, because it comes from an older file."""
    advice: str = _words(finding).advice(printable_record(finding.figures))
    remedies = [_words(other).remedy(printable_record(other.figures)) for other in finding.alternatives]
    return "; or ".join([advice, *remedies])


def words_of(finding: Finding) -> tuple[str | None, str | None]:
    """Return the text and the advice of a finding. Each of them is None if the finding lacks a figure for it."""
    return text_or_none(finding), advice_or_none(finding)


def text_or_none(finding: Finding, numbers: Numbers = MappingProxyType({})) -> str | None:
    """Return the text of a finding; None if an older file lacks a figure that the text needs."""
    with suppress(KeyError, AttributeError):
        return text_of(finding, numbers)
    return None


def advice_or_none(finding: Finding) -> str | None:
    """Return the advice of a finding; None if an older file lacks a figure that the advice needs."""
    with suppress(KeyError, AttributeError):
        return advice_of(finding)
    return None


def keys_of(finding: Finding) -> FindingKeys:
    """Return the keys of a finding in the JSON document. Raises KeyError if its text or its advice needs a figure that
    an older file lacks.
    """
    text, advice = text_of(finding), advice_of(finding)
    rest = finding.commands, finding.environment, finding.within, finding.doubtful
    return FindingKeys(finding.id, finding.bytes, text, advice, finding.listed, *rest)


def _words(finding: Finding) -> Words[Any]:
    return WORDS[type(finding.figures)]


def _shared(shared: list[tuple[str, int]], numbers: Numbers) -> list[str]:
    """Return a sentence about the more specific findings that also count some of this finding's memory, and how much
    each counts."""
    if not shared:
        return []
    (name, size), *more = shared
    first = f"{size_text(size)} more of this memory is counted in {_named([name], numbers)}"
    return [", ".join([first, *(f"{size_text(size)} in {_named([name], numbers)}" for name, size in more)])]


def _within(finding: Finding, numbers: Numbers) -> list[str]:
    """Return a sentence that names other findings that may count some or all of this finding's bytes."""
    if finding.within is None:
        return []
    # The finding's own text already names this one.
    same = getattr(finding.figures, "same", None)
    names = [name for name in (finding.within, *finding.also_within) if name != same]
    if not names:
        return []
    found = _named(names, numbers)
    return [f"{found.capitalize()} may count the same bytes: do not add them up"]


def _named(names: Sequence[str], numbers: Numbers) -> str:
    """Return the names by which a sentence refers to findings: their numbers in the list, or else their ids."""
    places = sorted(number for name in names for number in numbers.get(name, ()))
    known = [str(number) for number in places] or [f"'{name}'" for name in names]
    return f"finding{'s' * (len(known) > 1)} {listed(known)}"
