"""What texts may show of a target: everything, or no contents of strings, bytes and keys (``--no-text``).

There is one Disclosure for each target, asked by whatever turns memory into text: values (``repr``), keys in paths
(``edges``), and the numbers in damage and errors, which are words of memory. Names are code and are always shown: of
types, modules, files, functions, variables, and of attributes that are identifiers.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from gdbheap.target.target import Damage

NO_TEXT, VARIABLE = "--no-text", "GDBHEAP_NO_TEXT"
# Addresses of x86-64 processes are below; a word of eight characters is above.
FIRST_NON_ADDRESS = 1 << 47
LEAST_TEXT = 4
_NUMBER = re.compile(r"\b(?:0x[0-9a-f]+|\d[\d,]*)\b")


class Disclosure:
    """``contents``: whether contents of strings, bytes and keys are shown. It changes between the commands of gdb."""

    def __init__(self, contents: bool = True) -> None:
        self.contents = contents

    def name(self, text: str) -> str:
        """An attribute's name as it is where it is an identifier or contents are shown, else its length."""
        return text if self.contents or text.isidentifier() else hidden("str", len(text))

    def numbers(self, text: str) -> str:
        """``text`` without numbers that are no address or size but may be characters of the target's."""
        return text if self.contents else without_words(text)

    def damage(self, found: Damage) -> Damage:
        """The same damage, without numbers that may be characters."""
        if self.contents:
            return found
        expected, met = without_words(found.expected), without_words(found.found)
        return replace(found, what=without_words(found.what), expected=expected, found=met)


def wanted(environment: Mapping[str, str]) -> bool:
    """Whether the environment asks for ``--no-text``: by any value but an empty one and 0."""
    return environment.get(VARIABLE, "") not in ("", "0")


def is_hidden(words: Sequence[str], environment: Mapping[str, str]) -> bool:
    """Whether a command line or the environment asks for ``--no-text``."""
    return NO_TEXT in words or wanted(environment)


def hidden(kind: str, length: int) -> str:
    """What stands for a value: ``<str of 6>``, in characters or bytes."""
    return f"<{kind} of {length:,}>"


def without_words(text: str) -> str:
    """``text`` with a length in the place of each number whose bytes may be characters."""
    return _NUMBER.sub(_masked, text)


def _masked(found: re.Match[str]) -> str:
    digits = found[0].replace(",", "")
    value = int(digits, 16 if digits.startswith("0x") else 10)
    raw = value.to_bytes(max((value.bit_length() + 7) // 8, 1), "little")
    readable = len(raw) >= LEAST_TEXT and all(0x20 <= byte < 0x7F for byte in raw)
    return f"<word of {len(raw)} bytes>" if readable or value >= FIRST_NON_ADDRESS else found[0]
