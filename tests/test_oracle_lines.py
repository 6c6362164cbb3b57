"""``heap pyobjects --by=line`` and ``heap at`` against tracemalloc's own figures in the traced program."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from support.core_words import Memory
from support.library import heap_of
from support.programs import FORMS, SOURCES, ask, gdbheap, interpreter_of_release, running, since, stripped_library

from gdbheap.answers.at import at
from gdbheap.answers.lines import lines


def started(release: str, rng: random.Random, folder: Path) -> list[str]:
    """Return the command that runs the program; its truth is written to the folder."""
    python = interpreter_of_release(release).executable
    arguments = (rng.getrandbits(32), rng.randrange(2, 800), rng.randrange(1, 9), folder / "truth")
    return [python, "-s", str(SOURCES / "traced_lines.py"), *map(str, arguments)]


def check_lines(rows: list[tuple[str, int, int]], folder: Path) -> dict[str, Any]:
    """Check that each line of the program up to its fork has exactly the blocks and bytes that tracemalloc counts,
    and no other line has any; return the program's output."""
    truth: dict[str, Any] = json.loads((folder / "truth").read_text())

    def before(place: str) -> bool:
        file, _colon, line = place.rpartition(":")
        return file.endswith("traced_lines.py") and int(line) < truth["last"]

    own = {line: [count, size] for line, count, size in rows if before(line)}
    assert own and own == {line: row for line, row in truth["lines"].items() if before(line)}
    return truth


@pytest.mark.parametrize("release", since("3.6"))
def test_lines_of_a_process(release: str, rng: random.Random, tmp_path: Path) -> None:
    """Check that the table equals take_snapshot() to the line, block and byte, and that single blocks have their
    lines."""
    with running(started(release, rng, tmp_path), tmp_path) as target:
        with heap_of(str(target.pid)) as heap:
            answer = lines(heap)
            truth = check_lines([(row.place, row.count, row.bytes) for row in answer.rows], tmp_path)
            found = {address: at(heap, int(address)).allocated_at for address in truth["places"]}
    assert answer.unreadable == 0 and answer.bytes == sum(row.bytes for row in answer.rows)
    places = {address: None if one is None else f"{one.file}:{one.line}" for address, one in found.items()}
    assert places == truth["places"]


@pytest.mark.parametrize("mode", ["stripped", "debug hooks", *FORMS[1:]])
def test_other_ways(mode: str, rng: random.Random, tmp_path: Path) -> None:
    """Check programs without symbols, with debug hooks, and in cores."""
    environment = {}
    if mode == "stripped":
        own = next(iter(since("3.12")), "")
        interpreter = interpreter_of_release(own)
        environment = {"LD_LIBRARY_PATH": str(stripped_library(interpreter))}
    elif mode == "debug hooks":
        environment = {"PYTHONMALLOC": "debug"}
    release = "3.12" if mode == "stripped" else "3.11"
    with running(started(release, rng, tmp_path), tmp_path, environment) as target:
        name = target.as_form(mode) if mode in FORMS else str(target.pid)
        answer = ask("pyobjects", name, "--by=line", "--top=all")
        truth = check_lines([(row["place"], row["count"], row["bytes"]) for row in answer["rows"]], tmp_path)
        address, place = next(iter(truth["places"].items()), (None, None))
        where = ask("at", name, address)["allocated_at"] if address else None
        text = gdbheap("pyobjects", name, "--by=line", "--top=3").stdout
    assert where is None or f"{where['file']}:{where['line']}" == place
    assert "(other lines)" in text


def test_lines_that_cannot_be_read(rng: random.Random, tmp_path: Path) -> None:
    """Check a table of which a few tracebacks lead nowhere: each of its entries is in a line, or counts as
    unreadable."""
    with running(started("3.11", rng, tmp_path), tmp_path) as target:
        core = target.as_form(FORMS[1])
    memory, spoilt = Memory(Path(core)), rng.randrange(1, 9)
    with heap_of(core) as heap:
        (table, *_others), before = heap.python.traces.tables, lines(heap)
        first, *others = (entry for _bucket, entry in heap.python.traces._entries(table))
        # The first entries also prove the table.
        entries = [first, *rng.sample(others, spoilt - 1)]
        starts = [entry + 16 + table.key if table.key else memory.word(entry + 24) for entry in entries]
    for start in starts:
        memory.put(start + 8, 0x10)
    with heap_of(core) as heap:
        answer = lines(heap)
        known = sum(table.entries for table in heap.python.traces.tables)
    assert before.unreadable == 0 and answer.unreadable == spoilt
    assert answer.count + answer.unreadable == before.count == known
    assert before.bytes - answer.bytes == sum(memory.word(start) for start in starts)
