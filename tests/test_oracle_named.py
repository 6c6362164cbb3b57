"""Real programs at random moments: nearly every used byte has a name.

The names are true: memory reached from objects goes when the objects go, memory without a reference is not named, and
buffers add up by kind to their owners.
"""

from __future__ import annotations

import json
import random
import subprocess
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest
from named import Workload, measured, workloads
from support.installed import python_with
from support.programs import (
    FORMS,
    KINDS,
    PROCESS,
    RELEASES,
    SOURCES,
    Running,
    ask,
    gdbheap,
    interpreter_of,
    interpreter_of_release,
    running,
)

pytestmark = pytest.mark.cases(5)

MIN_NAMED = 0.97
MAX_UNCLASSIFIED = 0.005
STOPS, MANY_STOPS = 2, 20
# Seconds: tables are resized all the time.
SHORT_GAP = 0.2
# The share of a library's structures that a type's objects own alone; others may be shared or in a cache.
MIN_TRUE = 0.9
FULL = 1_000_000


@pytest.mark.parametrize("workload", workloads(), ids=lambda workload: workload.name)
def test_nearly_all_is_named(workload: Workload, rng: random.Random, tmp_path: Path) -> None:
    """Check each stop; the parts add up to the used bytes."""
    for stop in measured(workload, STOPS, rng, tmp_path):
        assert stop.named >= MIN_NAMED, stop
        assert stop.unclassified <= MAX_UNCLASSIFIED * stop.blocks, stop


@pytest.mark.cases(1)
@pytest.mark.parametrize("kind", KINDS)
def test_tables_in_the_middle_of_resizing(kind: str, rng: random.Random, tmp_path: Path) -> None:
    """Check that a table to which only a register leads has a name too."""
    command = [interpreter_of(kind), str(SOURCES / "resizing.py"), str(rng.getrandbits(32))]
    workload = Workload("resizing", lambda rng: command)
    for stop in measured(workload, MANY_STOPS, rng, tmp_path, SHORT_GAP):
        assert stop.named >= MIN_NAMED, stop


# For each kind of borrowed.py: the modules that it needs, and the types whose objects lead to its structures.
BORROWED: dict[str, tuple[str, tuple[str, ...]]] = {
    "sqlite3": ("", ("sqlite3.*",)),
    "ssl": ("", ("ssl.*", "_ssl.*")),
    "zlib": ("", ("zlib.*",)),
    "bz2": ("", ("_bz2.*",)),
    "lzma": ("", ("_lzma.*",)),
    "hashlib": ("", ("_hashlib.*",)),
    "struct": ("", ("_struct.*",)),
    "elements": ("", ("xml.etree.*",)),
    "PIL": ("PIL", ("ImagingCore",)),
    "lxml": ("lxml", ("lxml.*",)),
}


def held(target: str, patterns: tuple[str, ...]) -> tuple[int, int, dict[str, int]]:
    """Return the used bytes, the part of them that is named after objects of these types, and the bytes that each
    root leads to."""
    answer = ask("pyobjects", target, f"--top={FULL}")
    rows = [row for row in answer["rows"] if any(fnmatchcase(row["type"], pattern) for pattern in patterns)]
    roots = {row["name"]: row["bytes"] for row in answer["roots"]}
    return answer["all_used"]["bytes"], sum(row["bytes"] for row in rows), roots


@pytest.mark.parametrize("kind", BORROWED)
def test_what_is_reached_goes_with_its_objects(kind: str, rng: random.Random, tmp_path: Path) -> None:
    """Check that the bytes of a library's structures that are named after objects are free once these objects are
    gone."""
    package, patterns = BORROWED[kind]
    python = python_with(package) if package else interpreter_of("stripped")
    command = [python, str(SOURCES / "borrowed.py"), kind, str(rng.randrange(40, 120)), str(rng.getrandbits(32))]
    with running(command, tmp_path) as target:
        used, named, roots = held(str(target.pid), patterns)
        target.go_on()
        used_later, named_later, roots_later = held(str(target.pid), patterns)
    gone, said = used - used_later, named - named_later
    assert said > 0 and gone >= MIN_TRUE * said, (command, gone, said, roots, roots_later)
    assert said >= MIN_TRUE * gone, (command, gone, said, roots, roots_later)


@pytest.mark.parametrize("release", RELEASES)
def test_syntax_tree_of_a_running_script(release: str, rng: random.Random, tmp_path: Path) -> None:
    """Check that the blocks of a running main script's syntax tree are the interpreter's, and that the same script
    as bytecode has none."""
    script = tmp_path / "main.py"
    script.write_text(
        "held = lambda: [" + "(id, [])," * rng.randrange(300, 3000) + "]\nimport signal\nsignal.pause()\n"
    )
    python = interpreter_of_release(release).executable
    compile_it = f"import py_compile; py_compile.compile({str(script)!r}, {str(script)!r} + 'c')"
    subprocess.run([python, "-c", compile_it], check=True)
    with running([python, f"{script}c"], tmp_path) as target:
        before = syntax_blocks(target)
    with running([python, str(script)], tmp_path) as target:
        after = syntax_blocks(target)
    assert len(after) > len(before)
    assert sum(after.values()) - sum(before.values()) == len(after) - len(before)


def syntax_blocks(target: Running) -> dict[int, bool]:
    """Return whether each used chunk of the size of a PyArena's block is the interpreter's own."""
    rows = ask("chunks", str(target.pid), "--min=8224", "--max=8300", "--state=used", f"--top={FULL}")["rows"]
    return {row["address"]: row["what"] == f"reached from the interpreter at {row['address']:#x}" for row in rows}


@pytest.mark.parametrize("form", FORMS)
def test_lost_blocks_are_not_named(form: str, rng: random.Random, tmp_path: Path) -> None:
    """Check that blocks without any pointer to them are listed as unknown, largest first, with their sizes and
    apparent contents."""
    arguments = [str(rng.randrange(100, 400)), str(rng.getrandbits(32)), str(tmp_path / "truth")]
    command = [interpreter_of("stripped"), str(SOURCES / "lost.py"), *arguments]
    with running(command, tmp_path) as target:
        name = target.as_form(form)
        answer = ask("pyobjects", name)
        text = gdbheap("pyobjects", name, "--bytes").stdout if form == PROCESS else ""
    truth = json.loads((tmp_path / "truth").read_text())
    lost = {at ^ truth["key"]: (size, look) for at, size, look in truth["blocks"]}
    unknown = {row["address"]: row for row in answer["unidentified"]}
    sizes = [row["size"] for row in answer["unidentified"]]
    assert sizes == sorted(sizes, reverse=True)
    assert sum(sizes) == answer["unclassified"]["bytes"] + answer["other_chunks"]["bytes"]
    missed = [hex(at) for at in lost if at not in unknown]
    # A word that only looks like an address may lead to one: the heap of this interpreter is below 1 GiB.
    assert len(missed) <= 3 + len(lost) // 100, missed
    for at in lost.keys() & unknown.keys():
        size, look = lost[at]
        assert size <= unknown[at]["size"] - 8 < size + 32 and unknown[at]["look"] == look
    if text:
        largest = answer["unidentified"][0]
        row = [f"{largest['address']:#x}", f"{largest['size']:,}", *largest["look"].split()]
        assert row in [line.split() for line in text.splitlines()]


# The buffers of the objects of owners.py; an OrderedDict has as many nodes as items, beside keys and a table.
ROLES = {
    "Deque": "items", "Array": "items", "List": "items", "Bytes": "data", "Dict": "keys", "Set": "table",
    "Wide": "data",
}  # fmt: skip


def in_chunks(size: int) -> int:
    """Return the size of the smallest chunk for a request, or of pymalloc's block."""
    return (size + 15) & ~15 if size <= 512 else (size + 8 + 15) & ~15


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", KINDS)
def test_buffers_by_what_they_are(kind: str, form: str, rng: random.Random, tmp_path: Path) -> None:
    """Check that each kind has the number and bytes that the program counted, and that the rows add up to the table
    of types."""
    arguments = (rng.getrandbits(32), 1500, tmp_path / "truth")
    command = [interpreter_of(kind), str(SOURCES / "owners.py"), *map(str, arguments)]
    with running(command, tmp_path) as target:
        truth = json.loads((tmp_path / "truth").read_text())["sizes"]
        name = target.as_form(form)
        answer, table = ask("pyobjects", name, "--buffers"), ask("pyobjects", name, f"--top={FULL}")
        top = rng.randrange(1, 9)
        cut = ask("pyobjects", name, "--buffers", "--type=__main__.*", f"--top={top}", "--sort=count")
    rows = {(row["type"], row["role"]): row for row in answer["rows"]}
    assert len(rows) == len(answer["rows"]) == answer["count"]
    for row in table["rows"]:
        own = [buffer for (owner, _role), buffer in rows.items() if owner == row["type"]]
        assert sum(buffer["bytes"] for buffer in own) == row["buffers"], row
        assert sum(buffer["bytes"] for buffer in own if buffer["is_reached"]) == row["reached"], row
    assert (answer["total"]["bytes"], answer["total"]["reached"]) == (
        table["total"]["buffers"],
        table["total"]["reached"],
    )
    check_roles(truth, rows)
    check_cut(answer, cut, top)


def check_roles(truth: dict[str, Any], rows: dict[tuple[str, str], dict[str, Any]]) -> None:
    """Compare with the sizes of ``__sizeof__``."""
    for name, role in ROLES.items():
        _count, sizes = truth[f"__main__.{name}"]
        found = rows[f"__main__.{name}", role]
        least = sum(map(in_chunks, sizes))
        assert found["count"] == len(sizes), name
        assert 0 <= found["bytes"] - least <= 16 * sum(size > 512 for size in sizes), name
    count, sizes = truth["__main__.Ordered"]
    found = {role: rows["__main__.Ordered", role]["count"] for role in ("keys", "table", "nodes")}
    assert found == {"keys": count, "table": count, "nodes": len(sizes) - 2 * count}


def check_cut(answer: dict[str, Any], cut: dict[str, Any], top: int) -> None:
    """Check that with a pattern and --top the sums are of all rows that match, and the rows are the first ones."""
    own = [row for row in answer["rows"] if row["type"].startswith("__main__.")]
    assert len(own) > top
    sums = {key: sum(row[key] for row in own) for key in ("count", "bytes")}
    assert {key: cut["total"][key] for key in sums} == sums
    assert (cut["count"], cut["more"]) == (len(own), len(own) - top)
    own.sort(key=lambda row: (-row["count"], row["type"], row["role"]))
    assert cut["rows"] == own[:top]


def test_two_tables_at_once_are_refused(tmp_path: Path) -> None:
    """Check that --list with --buffers, or an order that a table does not have, is a wrong usage."""
    with running([interpreter_of("stripped"), "-c", "import os; os.read(0, 1)"], tmp_path) as target:
        for options in (("--list", "--buffers"), ("--buffers", "--sort=address"), ("--sort=role",)):
            done = gdbheap("pyobjects", str(target.pid), *options)
            assert done.returncode == 2 and not done.stdout and len(done.stderr.splitlines()) == 1
