"""Hold objects whose text differs from repr(), and write each one's address and text: things.py SEED TRUTH.

TRUTH is JSON, as values.py writes it: long values cut by hand, functions with their places, modules, str objects that
were never made ready.
"""

from __future__ import annotations

import ctypes
import json
import random
import signal
import sys
from collections.abc import Callable
from typing import Any

CHARACTERS, ITEMS = 200, 50
ALPHABETS = ("abc '", "é\xa0'", "Ωж漢\ud800", "😀漢a")


class Node:
    """A class with a method."""

    def method(self) -> Callable[[], object]:
        """Return a closure."""
        return lambda: self


def cut(text: str, length: int) -> str:
    """Return the text of a value of which only the beginning is shown."""
    return f"{text}… ({length:,} in all)"


def shown(items: Any, count: int) -> str:
    """Return the shown items, and how many items are not shown."""
    return f"{', '.join(items)}, … {count - ITEMS:,} more"


def long_ones(generator: random.Random) -> list[tuple[object, str]]:
    """Return values beyond the default limits."""
    found: list[tuple[object, str]] = []
    for alphabet in ALPHABETS:
        text = "".join(generator.choices(alphabet, k=CHARACTERS + generator.randrange(1, 3000)))
        found.append((text, cut(repr(text[:CHARACTERS]), len(text))))
    raw = bytes(generator.randrange(256) for _ in range(CHARACTERS + generator.randrange(1, 3000)))
    found.append((raw, cut(repr(raw[:CHARACTERS]), len(raw))))
    count = ITEMS + generator.randrange(1, 3000)
    names = [str(number) for number in range(count)]
    found.append((list(range(count)), f"[{shown(names[:ITEMS], count)}]"))
    found.append((tuple(range(count)), f"({shown(names[:ITEMS], count)})"))
    pairs = [f"{number}: {number}" for number in range(ITEMS)]
    found.append((dict(zip(range(count), range(count))), "{" + shown(pairs, count) + "}"))
    return found


def functions() -> list[tuple[object, str]]:
    """Return functions, methods and modules."""
    inner = Node().method()
    found: list[tuple[object, str]] = []
    for function in (functions, Node.method, inner, json.dumps):
        code = function.__code__
        place = f'file "{code.co_filename}", line {code.co_firstlineno}'
        found.append((function, f"<function {function.__qualname__} at {id(function):#x}, {place}>"))
    node = Node()
    node_text = object.__repr__(node)
    found += [(node.method, f"<bound method Node.method of {node_text}>"), (len, repr(len)), (json, repr(json))]
    found += [(random, repr(random)), (sys, "<module 'sys'>"), (functions.__code__, repr(functions.__code__))]
    return found


def unready(generator: random.Random) -> list[tuple[object, str]]:
    """Return str objects that hold wide characters only, as the old C API makes them; none since 3.12."""
    api = ctypes.pythonapi
    found: list[tuple[object, str]] = []
    for alphabet in ALPHABETS if sys.version_info < (3, 12) else ():
        text = "".join(generator.choices(alphabet, k=generator.randrange(2, 150)))
        make, characters = api.PyUnicode_FromUnicode, api.PyUnicode_AsUnicode
        make.restype, make.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_ssize_t]
        characters.restype, characters.argtypes = ctypes.c_void_p, [ctypes.py_object]
        made = make(None, len(text))
        codes = (ctypes.c_uint32 * len(text))(*map(ord, text))
        ctypes.memmove(characters(made), codes, ctypes.sizeof(codes))
        found.append((made, repr(text)))
    return found


def main() -> None:
    """Make the things, write the truth, pause."""
    generator = random.Random(int(sys.argv[1]))
    kept = long_ones(generator) + functions() + unready(generator)
    with open(sys.argv[2], "w") as file:
        json.dump([(id(thing), text) for thing, text in kept], file)
    signal.pause()
    del kept


if __name__ == "__main__":
    main()
