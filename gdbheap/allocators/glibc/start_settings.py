"""Settings of malloc that a program was started with: by their variables, or by glibc's tunables."""

from __future__ import annotations

import re

from gdbheap.machines.machine import LARGEST_ADDRESS
from gdbheap.text import bounded_number

TUNABLES = "GLIBC_TUNABLES"
# What strtoul takes for a number.
NUMBER = re.compile(r"\A[ \t]*([+-]?)(0[xX][0-9a-fA-F]+|0[0-7]*|[1-9][0-9]*)")


def setting_in(environment: dict[str, str], variable: str, tunable: str) -> tuple[str | None, str | None]:
    """Return the variable's value, else the tunable's, and the variable that said so: glibc reads GLIBC_TUNABLES after
    the variables, and it wins."""
    if tunable in environment:
        return environment[tunable], TUNABLES
    for part in environment.get(TUNABLES, "").split(":"):
        name, _, value = part.partition("=")
        if name == tunable:
            return value, TUNABLES
    found = environment.get(variable)
    return found, variable if found is not None else None


def number_of(value: str) -> int | None:
    """Return the number that the value begins with, as strtoul reads it, base 0, and glibc its settings; None without
    one."""
    found = NUMBER.match(value)
    if found is None:
        return None
    sign, digits = found.groups()
    base = 16 if digits[:2] in ("0x", "0X") else 8 if digits.startswith("0") else 10
    number = bounded_number(digits[2:] if base == 16 else digits, LARGEST_ADDRESS, base)
    return -number & LARGEST_ADDRESS if sign == "-" else number
