"""Read the malloc settings with which a program was started, from environment variables or glibc's tunables."""

from __future__ import annotations

import re

from gdbheap.machines.machine import LARGEST_ADDRESS
from gdbheap.text import bounded_number

TUNABLES = "GLIBC_TUNABLES"
# A number as strtoul accepts it.
NUMBER = re.compile(r"\A[ \t]*([+-]?)(0[xX][0-9a-fA-F]+|0[0-7]*|[1-9][0-9]*)")


def setting_in(environment: dict[str, str], variable: str, tunable: str) -> tuple[str | None, str | None]:
    """Return the value of a setting and the name of the variable that sets it; (None, None) if it is not set.

    A tunable wins over ``variable``, because glibc reads GLIBC_TUNABLES after the other variables."""
    if tunable in environment:
        return environment[tunable], TUNABLES
    for part in environment.get(TUNABLES, "").split(":"):
        name, _, value = part.partition("=")
        if name == tunable:
            return value, TUNABLES
    found = environment.get(variable)
    return found, variable if found is not None else None


def number_of(value: str) -> int | None:
    """Return the number at the start of ``value`` as glibc reads it, with strtoul and base 0; None if there is none."""
    found = NUMBER.match(value)
    if found is None:
        return None
    sign, digits = found.groups()
    base = 16 if digits[:2] in ("0x", "0X") else 8 if digits.startswith("0") else 10
    number = bounded_number(digits[2:] if base == 16 else digits, LARGEST_ADDRESS, base)
    return -number & LARGEST_ADDRESS if sign == "-" else number
