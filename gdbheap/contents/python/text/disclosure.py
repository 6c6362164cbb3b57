"""Decide which contents of a target may be shown: all, or no strings, bytes and keys (``--no-text``).

Each target has one Disclosure. All code that turns memory into text uses it. It covers values (``repr``), keys in paths
(``edges``), and the numbers in damage and errors, which are words of memory. Names belong to the code and are always
shown. They are the names of types, modules, files, functions and variables. Names of attributes are shown if they are
identifiers.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from gdbheap.machines.machine import USER_END
from gdbheap.text import MOST_DIGITS

if TYPE_CHECKING:
    from gdbheap.targets.target import Damage

NO_TEXT, VARIABLE = "--no-text", "GDBHEAP_NO_TEXT"
# A number of which this many bytes are readable characters, anywhere in it, may be text.
MIN_TEXT_BYTES = 4
_NUMBER = re.compile(r"\b(?:0x[0-9a-f]+|\d[\d,]*)\b")


class Disclosure:
    """The rules for the contents of one target that may be shown.

    ``contents``: whether contents of strings, bytes and keys are shown; this may change between gdb commands.
    ``is_place``: returns whether a number is an address in a mapping or the end of a mapping. Such a number is not a
    secret.
    """

    def __init__(self, contents: bool = True, is_place: Callable[[int], bool] = lambda number: False) -> None:
        self.contents = contents
        self._is_place = is_place

    def name(self, text: str) -> str:
        """Return an attribute's name. If contents are hidden and it is not an identifier, return its length instead."""
        return text if self.contents or text.isidentifier() else hidden("str", len(text))

    def text(self, text: str) -> str:
        """Return the contents of a string. If contents are hidden, return its length instead."""
        return text if self.contents else hidden("str", len(text))

    def setting(self, value: str) -> str:
        """Return the value of a setting. If contents are hidden and it is not a number, return its length instead."""
        is_number = _NUMBER.fullmatch(value) and self.numbers(value) == value
        return value if self.contents or is_number else hidden("str", len(value))

    def numbers(self, text: str) -> str:
        """Return ``text`` as it may be shown. If contents are hidden, numbers that may be characters of the target are
        replaced by their lengths.

        Numbers that are addresses or sizes are kept.
        """
        return text if self.contents else without_words(text, self._is_place)

    def damage(self, found: Damage) -> Damage:
        """Return the damage as it may be shown.

        If contents are hidden, numbers in its text that may be characters of the target are replaced by their lengths.
        The address of the damage is then 0 unless it lies in a mapping.
        """
        if self.contents:
            return found
        address = found.address if self._is_place(found.address) else 0
        what, expected, met = map(self.numbers, (found.what, found.expected, found.found))
        return replace(found, address=address, what=what, expected=expected, found=met)


def wanted(environment: Mapping[str, str]) -> bool:
    """Return whether the environment asks for ``--no-text``: by any value other than "" and "0"."""
    return environment.get(VARIABLE, "") not in ("", "0")


def is_hidden(words: Sequence[str], environment: Mapping[str, str]) -> bool:
    """Return whether a command line or the environment asks for ``--no-text``."""
    return NO_TEXT in words or wanted(environment)


def hidden(kind: str, length: int) -> str:
    """Return the text that replaces a value, such as ``<str of 6>``. ``length``: characters or bytes."""
    return f"<{kind} of {length:,}>"


def without_words(text: str, is_place: Callable[[int], bool] = lambda number: False) -> str:
    """Return ``text`` with each number replaced by its length if its bytes may be characters of the target.

    A number in ``text`` may be a word of memory that belongs to a string. ``is_place``: returns whether a number is an
    address in a mapping or the end of a mapping; such a number is kept. Numbers of more than MOST_DIGITS digits are
    always replaced.
    """

    def masked(found: re.Match[str]) -> str:
        digits = found[0].replace(",", "")
        if len(digits.lstrip("0")) > MOST_DIGITS:
            return f"<number of {len(digits):,} digits>"
        value = int(digits, 16 if digits.startswith("0x") else 10)
        return f"<word of {_length(value)} bytes>" if _may_be_text(value) and not is_place(value) else found[0]

    return _NUMBER.sub(masked, text)


def _length(value: int) -> int:
    return max((value.bit_length() + 7) // 8, 1)


def _may_be_text(value: int) -> bool:
    """Return whether the bytes of a number may be characters.

    MIN_TEXT_BYTES readable bytes are enough, because bytes of 0 may follow the end of a text.
    """
    readable = sum(0x20 <= byte < 0x7F for byte in value.to_bytes(_length(value), "little"))
    return readable >= MIN_TEXT_BYTES or value >= USER_END
