"""The text of ``heap at`` against repr(), evaluated in the target itself, of random nested values."""

from __future__ import annotations

import json
import random
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from library import heap_of
from programs import FORMS, GCORE, PROCESS, SOURCES, Running, ask, running

from gdbheap.objects.repr import BRIEF, Limits

CUT = "…"
WIDE = Limits(length=100_000, value=20_000, items=1000, depth=30, reads=100_000)
SUPPORTED = range(8, 14)
# The text of what is too long, and of how much there would be.
LEFT_OUT = re.compile(r"… \([\d,]+ (bits )?in all\)|… [\d,]+ more|…")


def _found() -> list[str]:
    """Every CPython 3.8 to 3.13 below ~/.pyenv and in /usr/bin."""
    paths = [*Path.home().glob(".pyenv/versions/*/bin/python3.*"), *Path("/usr/bin").glob("python3.*")]
    named = {str(path): re.fullmatch(r"python3\.(\d+)", path.name) for path in paths}
    return sorted(path for path, match in named.items() if match and int(match[1]) in SUPPORTED)


PYTHONS = _found()
every_python = pytest.mark.parametrize("python", PYTHONS, ids=lambda path: path.replace("/bin/", " ").split("/")[-1])


def program(python: str, name: str, *arguments: object) -> list[str]:
    """Return the command that runs tests/programs/NAME.py."""
    return [python, "-I", str(SOURCES / f"{name}.py"), *map(str, arguments)]


def truth(directory: Path) -> list[tuple[int, str]]:
    """Return (address, text) of what the program wrote."""
    return [(address, text) for address, text in json.loads((directory / "truth").read_text())]


def texts(target: str, addresses: list[int], limits: Limits) -> list[str | None]:
    """Return the text of the object at each address."""
    with heap_of(target) as heap:
        return [heap.objects.repr.text(address, limits) for address in addresses]


def wrong(pairs: list[tuple[int, str]], found: list[str | None]) -> list[tuple[str, str, str | None]]:
    """Return those that differ."""
    return [(hex(a), text[:300], got and got[:300]) for (a, text), got in zip(pairs, found) if not same(text, got, a)]


def same(text: str, found: str | None, address: int) -> bool:
    """Return whether it is the very text; no text stands for one that tells no more than the type."""
    return text == found if found is not None else re.fullmatch(rf"<\S+ object at {address:#x}>", text) is not None


@every_python
@pytest.mark.parametrize("form", FORMS)
def test_texts_equal_repr(python: str, form: str, rng: random.Random, tmp_path: Path) -> None:
    """With wide limits nothing is cut, and every character is the target's own."""
    with running(program(python, "values", rng.getrandbits(32), 600, tmp_path / "truth"), tmp_path) as target:
        pairs = [(address, text) for address, text in truth(tmp_path) if len(text) < 50_000]
        found = texts(target.as_form(form), [address for address, _ in pairs], WIDE)
    assert len(pairs) > 400
    assert wrong(pairs, found) == []
    assert not any(CUT in text for text in found if text)
