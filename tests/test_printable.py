"""Escapes in texts of a target: a plain loop over the characters gives the same, and long texts take no time."""

from __future__ import annotations

import random
import re
import time
from collections.abc import Callable
from unicodedata import category

import pytest
from support.evil import NAMES

import gdbheap.text
from gdbheap.stack_frames import StackFrame
from gdbheap.text import FORGING, MARKS, MOST_MARKS, PLAIN_END, UNSEEN, named, printable, printable_record, quoted

# Characters of all kinds, as they may follow each other in a text.
KINDS = (
    "abc /._'\"`|;!?-", "\n\t\x00\x1b\x7f", "äßé\x85\x9b\xad", "日本語ก", "\u0300\u0301\u20dd\u0e31\u064b",
    "\u034f\ufe0f\ufe00\U000e0100", "\u115f\u2800\u3164\uffa0\u17b4", "\u200b\u202e\u2066\ufeff", "\ud800\udcff",
    "…\u201c\u2019\u3002\uff01", "🦀\U000e0041\U000f0000",
)  # fmt: skip


def plain_printable(text: str) -> str:
    """Return what ``printable`` returns, character by character."""
    shown, marks = [], 0
    for character in text:
        marks = marks + 1 if character >= PLAIN_END and category(character) in MARKS else 0
        is_selector = "\ufe00" <= character <= "\ufe0f" or "\U000e0100" <= character <= "\U000e01ef"
        is_shown = character.isprintable() and character not in UNSEEN and marks <= MOST_MARKS and not is_selector
        shown.append(character if is_shown else ascii(character)[1:-1])
    return "".join(shown)


def plain_reads_as_ours(text: str) -> bool:
    """Return whether ``named`` quotes a text, without shortcuts."""
    if (text.isascii() and text.isidentifier()) or re.fullmatch(gdbheap.text.WHOLE_TEXT, text):
        return False
    rest = re.sub(gdbheap.text.KEY, "", text)
    forging = FORGING.replace(r"'[^'\s]*\s[^']*'", r"'[^']*\s[^']*'")
    has_marks = any(character > "\x7f" and category(character)[0] == "P" for character in rest if character != "…")
    return bool(re.search(forging, rest)) or has_marks


def mixed(rng: random.Random) -> str:
    """Return a text of one to three kinds of characters, or of any characters."""
    if rng.random() < 0.2:
        return "".join(map(chr, rng.choices(range(0x110000), k=rng.randrange(30))))
    pool = "".join(rng.sample(KINDS, rng.randrange(1, 4)))
    return "".join(rng.choices(pool, k=rng.randrange(120)))


def test_all_characters() -> None:
    """Check each character of Unicode, between letters and in rows of its neighbours."""
    for start in range(0, 0x110000, 64):
        row = "".join(map(chr, range(start, start + 64)))
        apart = "a".join(row)
        assert printable(row) == plain_printable(row) and printable(apart) == plain_printable(apart), hex(start)


def test_random_texts(rng: random.Random) -> None:
    """Check texts of mixed characters, among them the malicious names, and the quotes that names get."""
    for text in [*NAMES, *(mixed(rng) for _ in range(20_000))]:
        assert printable(text) == plain_printable(text), ascii(text)
        assert named(text) == (quoted(text, 4000) if plain_reads_as_ours(text) else text), ascii(text)


def seconds(work: Callable[[str], object], text: str) -> float:
    """Return the least time of a processor that the work on a text took."""
    times = []
    for _ in range(5):
        began = time.thread_time()
        for _ in range(20):
            work(text)
        times.append(time.thread_time() - began)
    return min(times)


@pytest.mark.parametrize("end", ["\n", "🦀"])
def test_a_long_text_is_quick(end: str) -> None:
    """Check that one special character in a long text costs little of what a loop over its characters costs."""
    text = "a" * 3900 + end
    assert seconds(printable, text) < seconds(plain_printable, text) / 3


def test_a_quote_before_blanks_is_quick() -> None:
    """Check that a quote that never closes does not cost the square of the text's length."""
    assert seconds(named, "'" + " " * 3900) < seconds(plain_printable, "a" * 3900)


def test_a_text_is_escaped_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that the frames of a recursion cost no more than one of them, although their texts must change."""
    asked: list[str] = []

    def counting(text: str) -> str:
        asked.append(text)
        return plain_printable(text)

    monkeypatch.setattr(gdbheap.text, "printable", counting)
    file = "a\n" * 100
    shown = printable_record([StackFrame("f", "".join(file), line % 2, "python") for line in range(1000)])
    assert {one.file for one in shown} == {plain_printable(file)} and len(shown) == 1000
    assert sorted(asked) == sorted(["f", file, "python"])
