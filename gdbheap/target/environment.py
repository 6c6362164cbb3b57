"""The environment that a program was started with, as the kernel put it on the first thread's stack (execve(2)).

Below AT_RANDOM lie, ascending: argc, the pointers to the arguments and a null, those to the environment and a null, and
the auxiliary vector. So a core has it too, and what the program changed since (setenv) is not in it.
"""

from __future__ import annotations

import struct

from gdbheap.target.target import AT_RANDOM, Target

WORD = 8
# What lies between the pointers and the sixteen bytes of AT_RANDOM; and the most pointers that are looked at.
MOST_ENTRIES = 4096
LONGEST = 128 << 10


def initial_environment(target: Target) -> dict[str, str] | None:
    """Name to value; None where the place of it is not found. What cannot be read, or is no ``NAME=VALUE``, is left
    out."""
    pointers = _pointers(target)
    if pointers is None:
        return None
    found: dict[str, str] = {}
    for pointer in pointers:
        name, equals, value = _text(target, pointer).partition("=")
        if equals and name:
            found.setdefault(name, value)
    return found


def _pointers(target: Target) -> list[int] | None:
    """The pointers to the environment's texts: those in front of the auxiliary vector, up to the null before them."""
    stack, place = target.main_stack, target.auxv.get(AT_RANDOM, 0)
    if stack is None:
        return None
    start = max(stack.start, (place & ~15) - WORD * MOST_ENTRIES)
    raw = target.space.read_available(start, place - start)
    words = struct.unpack(f"<{len(raw) // WORD}Q", raw[: len(raw) // WORD * WORD])
    vector = _vector(target, words, place)
    if vector is None or vector < 1 or words[vector - 1]:
        return None
    first = vector - 1
    while first and words[first - 1]:
        first -= 1
    return [word for word in words[first : vector - 1] if word in stack]


def _vector(target: Target, words: tuple[int, ...], place: int) -> int | None:
    """Where the auxiliary vector begins: the pairs before that of AT_RANDOM which have one of its keys."""
    pairs = zip(range(len(words)), words, words[1:])
    at = next((index for index, key, value in pairs if key == AT_RANDOM and value == place), None)
    while at is not None and at >= 2 and target.auxv.get(words[at - 2]) == words[at - 1]:
        at -= 2
    return at


def _text(target: Target, address: int) -> str:
    raw = target.space.read_available(address, LONGEST)
    return raw.partition(b"\0")[0].decode("utf-8", "replace")
