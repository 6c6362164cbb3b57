"""Tables of lines against Python itself: the line at every instruction of a few hundred functions of each release."""

from __future__ import annotations

import json
import random
import subprocess
from typing import Any

import pytest
from support.programs import entered, interpreter_of_release, plain_environment, since

from gdbheap.contents.python.running.line_tables import line_of

# Up to 3.9 dis lists where a line begins; since 3.10 co_lines() lists ranges, some of them without a line.
DUMP = """
import argparse, ast, collections, dis, inspect, json, random, subprocess, sys, tokenize, types
def codes(code):
    yield code
    for one in code.co_consts:
        if isinstance(one, types.CodeType):
            for found in codes(one):
                yield found
def lines(code):
    size = len(code.co_code)
    if hasattr(code, "co_lines"):
        return [[start, end, line] for start, end, line in code.co_lines()]
    starts = list(dis.findlinestarts(code))
    ends = [start for start, line in starts[1:]] + [size]
    return [[start, end, line] for (start, line), end in zip(starts, ends)]
found = []
for module in (argparse, ast, collections, dis, inspect, json, random, subprocess, tokenize, types):
    text = open(inspect.getsourcefile(module), "rb").read()
    for code in codes(compile(text, "x", "exec")):
        table = code.co_linetable if hasattr(code, "co_linetable") else code.co_lnotab
        found.append([list(bytearray(table)), code.co_firstlineno, lines(code)])
# Several statements on far lines, steps back, and a call over many lines.
far = "def f():\\n" + "\\n".join("    x = 1" + "\\n" * (70 * n) for n in range(9))
far += "\\n    g(\\n" + "\\n" * 300 + "1,\\n2)"
for code in codes(compile(far, "x", "exec")):
    table = code.co_linetable if hasattr(code, "co_linetable") else code.co_lnotab
    found.append([list(bytearray(table)), code.co_firstlineno, lines(code)])
json.dump(found, sys.stdout)
"""
FORMS = {"3.10": {"co_linetable": 1}, "3.11": {"co_linetable": 1, "linetable_entries": 1}}


class Layout(dict[str, int]):
    """The fields of a release, as far as tables of lines need them."""


def layout_of(release: str) -> Layout:
    """Return the form of tables: pairs up to 3.9, ranges in 3.10, entries since."""
    minor = int(release.partition(".")[2])
    return Layout(FORMS["3.10"] if minor == 10 else FORMS["3.11"] if minor > 10 else {})


@pytest.mark.parametrize("release", since("3.6"))
def test_every_offset(release: str, rng: random.Random) -> None:
    """Check the line at the first, the last and some other byte of every range, in all functions of ten modules."""
    command = entered([interpreter_of_release(release).executable, "-I", "-W", "ignore", "-c", DUMP])
    done = subprocess.run(command, capture_output=True, text=True, env=plain_environment(), check=True)
    found: list[tuple[list[int], int, list[tuple[int, int, int | None]]]] = json.loads(done.stdout)
    assert len(found) > 300
    layout: Any = layout_of(release)
    wrong = []
    for table, first, ranges in found:
        for start, end, line in ranges:
            offsets = {start, end - 1, rng.randrange(start, end)} if end > start else set()
            told = {offset: line_of(layout, bytes(table), first, offset) for offset in offsets}
            wrong += [(first, offset, own, line) for offset, own in told.items() if own != line]
    assert wrong == []
