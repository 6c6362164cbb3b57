"""Snapshots that were changed on purpose: each command that reads one answers, or refuses it in one line."""

from __future__ import annotations

import contextlib
import copy
import io
import json
import os
import random
import zipfile
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from support.programs import whole_snapshot

from gdbheap.commands.shell import commands
from gdbheap.errors import GdbheapError

# GDBHEAP_FUZZ sets the number of mutants; if it is set, each mutant goes through all commands.
MUTANTS = int(os.environ.get("GDBHEAP_FUZZ", "40"))
SNAPSHOT = "snapshot.json"
Change = tuple[str, Callable[[bytes], bytes]]
COMMANDS = [
    ["export", "%", "-o", "%.csv", "--format=csv"],
    ["export", "%", "-o", "%.sqlite", "--format=sqlite"],
    ["export", "%", "-o", "%.parquet", "--format=parquet"],
    ["export", "%", "%", "-o", "%.parts", "--format=csv", "--partition=pid"],
    ["sql", "%", "select * from blocks, snapshots, types, holes limit 10"],
    ["heap", "%"],
    ["heap", "%", "--json"],
    ["diff", "%", "good"],
    ["diff", "good", "%"],
    ["diff", "good", "%", "--json"],
    ["diff", "good", "%", "good"],
    ["report", "%", "-o", "%.html"],
]
ALL = "GDBHEAP_FUZZ" in os.environ
VALUES: list[Any] = [
    *(None, True, -1, 0, 1, 1 << 31, 1 << 63, 1 << 64, -(1 << 63), 10**300, 1e308, float("inf"), float("nan"), 0.5),
    *("", "x" * 5000, "\x1b]52;c;AAAA\x07\nFindings: none.", "\ud800", [], {}, [None], [[]] * 100, {"a": 1}),
]


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a snapshot of a Python process, with all optional parts."""
    return whole_snapshot(tmp_path_factory.mktemp("damaged"))


def _evil_values(document: Any, rng: random.Random) -> None:
    """Change some values of a JSON document."""
    for _ in range(rng.choice([1, 1, 1, 3, 10])):
        node, place = document, None
        while isinstance(node, (list, dict)) and node and (place is None or rng.random() < 0.85):
            key = rng.randrange(len(node)) if isinstance(node, list) else rng.choice(list(node))
            place = node, key
            node = node[key]
        if place is None:
            return
        above, key = place
        if rng.random() < 0.9:
            above[key] = copy.deepcopy(rng.choice(VALUES))
        elif isinstance(above, dict):
            del above[key]
        else:
            above[:] = above[:100] * rng.choice([0, 2, 10])


def _evil(data: bytes, rng: random.Random) -> bytes:
    """Change some bytes, mostly without changing their number."""
    changed = bytearray(data)
    for _ in range(rng.choice([1, 2, 5, 30]) if data else 0):
        changed[rng.randrange(len(data))] = rng.choice([0, 0xFF, rng.randrange(256)])
    if rng.random() < 0.1:
        del changed[rng.randrange(len(data) + 1) :]
    elif rng.random() < 0.1:
        changed += rng.randbytes(8)
    return bytes(changed)


def _changed(source: Path, path: Path, name: str, change: Callable[[bytes], bytes]) -> None:
    """Write a copy of a snapshot with one entry changed."""
    with zipfile.ZipFile(source) as read, zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as written:
        for entry in read.namelist():
            data = read.read(entry)
            written.writestr(entry, change(data) if entry == name else data)


def _document(change: Callable[[Any], None]) -> Callable[[bytes], bytes]:
    """Return a function that changes the document of a snapshot."""

    def changed(data: bytes) -> bytes:
        document = json.loads(data)
        change(document)
        return json.dumps(document).encode()

    return changed


def _said(words: list[str]) -> str:
    """Return the answer of a command, or the line of its refusal; anything else is raised."""
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            text, status = commands.run(words)
        assert status in (0, 1)
        return text
    except GdbheapError as error:
        assert "\n" not in str(error), str(error)
        return str(error)


def _lines(path: Path, good: Path) -> list[list[str]]:
    """Return the command lines that read this snapshot and a second one."""
    return [[str(good) if word == "good" else word.replace("%", str(path)) for word in line] for line in _known()]


def _known() -> list[list[str]]:
    known = {module: find_spec(module) is not None for module in ("pyarrow", "duckdb")}
    return [
        line
        for line in COMMANDS
        if (known["pyarrow"] or line[-1] != "--format=parquet") and (all(known.values()) or line[0] != "sql")
    ]


def _evil_target(key: str, value: Any) -> Change:
    return SNAPSHOT, _document(lambda document: document["target"].update({key: value}))


DAMAGES: dict[str, Change] = {
    "a type of none": ("blocks/kinds", lambda data: b"\xff" * len(data)),
    "no far address": ("blocks/far", lambda data: b""),
    "far addresses of none": ("blocks/far", lambda data: data + bytes(8)),
    "large sizes of none": ("blocks/large", lambda data: data + bytes(8)),
    "no allocator": (SNAPSHOT, _document(lambda document: document["blocks"]["allocators"].clear())),
    "no type": (SNAPSHOT, _document(lambda document: document["blocks"]["types"].clear())),
    "a process id that is a text": _evil_target("pid", "1"),
    "a host that is a number": _evil_target("host", 1),
    "a program that is a list": _evil_target("exe", [[]]),
    "a start that is a dict": _evil_target("start_time", {}),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_each_damage(damage: str, good: Path, tmp_path: Path) -> None:
    """Check that all commands refuse the snapshot and leave no file behind."""
    path = tmp_path / "damaged.heap"
    _changed(good, path, *DAMAGES[damage])
    for words in _lines(path, good):
        assert "the file is damaged" in _said(words), words
    assert list(tmp_path.iterdir()) == [path]


def test_any_damage(rng: random.Random, good: Path, tmp_path: Path) -> None:
    """Check documents and columns with other values in them."""
    with zipfile.ZipFile(good) as archive:
        names = archive.namelist()
    lines = _lines(tmp_path / "mutant.heap", good)
    for _ in range(MUTANTS):
        name = rng.choice([SNAPSHOT, rng.choice(names)])
        change = _document(lambda document: _evil_values(document, rng))
        _changed(good, tmp_path / "mutant.heap", name, change if name == SNAPSHOT else lambda data: _evil(data, rng))
        for words in lines if ALL else rng.sample(lines, 1):
            said = _said(words)
            assert "Traceback" not in said and "\x1b]" not in said
