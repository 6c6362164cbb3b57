"""Programs that print the reprs of their own objects."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path

import pytest

from support.programs import SOURCES, interpreters, since

CUT = "…"
LONGEST = 50_000
PYTHONS = [found.executable for release in since("3.8") for found in interpreters(release)]
every_python = pytest.mark.parametrize("python", PYTHONS, ids=lambda path: path.replace("/bin/", " ").split("/")[-1])


def program(python: str, name: str, *arguments: object) -> list[str]:
    """Return the command that runs tests/programs/NAME.py."""
    return [python, "-I", str(SOURCES / f"{name}.py"), *map(str, arguments)]


def truth(directory: Path) -> list[tuple[int, str]]:
    """Return (address, text) of each value that the program wrote."""
    pairs = json.loads((directory / "truth").read_text())
    return [(address, text) for address, text in pairs if len(text) < LONGEST]


def same(text: str, found: str | None, address: int) -> bool:
    """Return whether the texts are equal; no text stands for one that only tells the type."""
    return text == found if found is not None else re.fullmatch(rf"<\S+ object at {address:#x}>", text) is not None


def values(python: str, rng: random.Random, directory: Path, count: int) -> list[str]:
    """Return the command that holds random values."""
    return program(python, "values", rng.getrandbits(32), count, directory / "truth")
