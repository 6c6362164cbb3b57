"""Texts of the finding ``slack``: containers with much unused capacity."""

from __future__ import annotations

from gdbheap.findings.slack.rule import GROWING, PER_SLOT, UnusedCapacity
from gdbheap.report.text.numbers import counted, size_text
from gdbheap.report.words.finding_words import Words

REASONS = (
    (GROWING, "lists and byte arrays keep their capacity until they shrink below half"),
    (tuple(PER_SLOT), "dicts and sets keep their tables when entries are deleted"),
)
ADVICE = (
    (
        GROWING,
        "if a list or bytearray does not grow any more, replace it with an exact copy: x[:], tuple(x) or bytes(x)",
    ),
    (("dict",), "replace an emptied dict with dict(x), not with x.copy(), which may keep the table"),
    (("set",), "replace an emptied set with set(x)"),
)
OWNER = "'heap why ADDRESS' shows what holds the container"


def _text(figures: UnusedCapacity) -> str:
    what = " and ".join(counted(count, name) for name, count in figures.shown)
    return (
        f"unused room in {what}, {size_text(figures.resident)} of it resident: "
        f"{' and '.join(_about(figures, REASONS))}; the {figures.type} at {figures.address:#x} has the most unused "
        f"room, {size_text(figures.most)}"
    )


def _advice(figures: UnusedCapacity) -> str:
    return "; ".join([*_about(figures, ADVICE), OWNER])


def _about(figures: UnusedCapacity, rows: tuple[tuple[tuple[str, ...], str], ...]) -> list[str]:
    """Return the texts in ``rows`` that apply to a container type that the finding names. Each row has the types and
    the text."""
    return [words for names, words in rows if any(name in names for name, _count in figures.shown)]


WORDS = Words(UnusedCapacity, _text, _advice)
