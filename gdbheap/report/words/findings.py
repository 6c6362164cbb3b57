"""Format findings and their advice. The texts for each kind of finding are in ``words.py``, next to its ``rule.py``."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from types import MappingProxyType
from typing import Any

from gdbheap.dataclass import dataclass
from gdbheap.findings.finding import Figures, Finding
from gdbheap.report.text.numbers import listed, size_text
from gdbheap.report.words.finding_words import Words
from gdbheap.text import printable_record

__all__ = [
    "FindingKeys",
    "Numbers",
    "advice_of",
    "advice_or_none",
    "keys_of",
    "numbers_of",
    "text_of",
    "text_or_none",
    "words_for",
    "words_of",
]

Numbers = Mapping[str, Sequence[int]]
"""The positions of findings in the list that the reader sees, by the findings' id, counted from 1. Empty if there is no
list. Several findings may have the same id.
"""


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


def words_for(kind: type[Any]) -> Words[Any]:
    """Return the texts of the findings with figures of this type: those of the file ``words.py`` beside the type's
    ``rule.py``. Raises KeyError for other types, such as the dict of an older file."""
    if not issubclass(kind, Figures):
        raise KeyError(kind)
    # Imported on use: most processes have few of the findings.
    words: Words[Any] = import_module(f"{kind.__module__.removesuffix('rule')}words").WORDS
    return words


def _words(finding: Finding) -> Words[Any]:
    return words_for(type(finding.figures))


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
