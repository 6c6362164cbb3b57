"""slack: containers that have room for much more than they hold."""

from __future__ import annotations

from gdbheap.findings.slack.rule import GROWING, PER_SLOT, Room
from gdbheap.report.text.numbers import counted, size_text
from gdbheap.report.words.finding_words import Words

REASONS = (
    (GROWING, "lists and byte arrays keep what they made as they grew until they shrink below half"),
    (tuple(PER_SLOT), "dicts and sets keep their tables however few entries are left"),
)
ADVICE = (
    (
        GROWING,
        "replace what grows no more by its copy x[:], which has no room beyond, or by tuple(x) or bytes(x); make what "
        "is filled once in one step",
    ),
    (("dict",), "replace a dict that was emptied by dict(x), not by x.copy(), which may keep the table"),
    (("set",), "replace a set that was emptied by set(x)"),
)
OWNER = "'heap why ADDRESS' says who holds it"


def _text(figures: Room) -> str:
    what = " and ".join(counted(count, name) for name, count in figures.shown)
    return (
        f"{what} with room beyond what they hold, {size_text(figures.resident)} of it resident: "
        f"{' and '.join(_about(figures, REASONS))}; the most, {size_text(figures.most)}, in the {figures.type} at "
        f"{figures.address:#x}"
    )


def _advice(figures: Room) -> str:
    return "; ".join([*_about(figures, ADVICE), OWNER])


def _about(figures: Room, rows: tuple[tuple[tuple[str, ...], str], ...]) -> list[str]:
    """The words that are about types worth naming."""
    return [words for names, words in rows if any(name in names for name, _count in figures.shown)]


WORDS = Words(Room, _text, _advice)
