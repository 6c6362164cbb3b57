"""CPython's mimalloc, in free-threaded builds and with ``PYTHONMALLOC=mimalloc``, against the interpreter's own
counts."""

from __future__ import annotations

import bisect
import random
import re
import struct
import subprocess
from pathlib import Path
from typing import Any

import pytest
from support import kernel
from support.closures import SAMPLE, check_counts, check_objects, closure, reached_in_heaps, some
from support.populations import census, check_new_objects
from support.programs import FREE_THREADED, KERNEL_CORE, Running, ask, release_program, running, stripped_library
from support.programs import interpreter_of_release as interpreter_of

MODE = {"PYTHONMALLOC": "mimalloc"}
BUILDS = [("3.13", MODE), ("3.14", MODE), ("3.15", MODE)] + [(release, {}) for release in FREE_THREADED]
NAMES = [f"{release}{'-mimalloc' if environment else ''}" for release, environment in BUILDS]
every_build = pytest.mark.parametrize(("release", "environment"), BUILDS, ids=NAMES)


def blocks_program(release: str, rng: random.Random, folder: Path, objects: int, threads: int) -> list[str]:
    """Return the command that runs blocks.py; its output is in ``folder``/told."""
    return release_program(release, "blocks", rng.getrandbits(30), objects, threads, folder / "told")


def told(folder: Path, target: Running) -> int:
    """Return sys.getallocatedblocks() as blocks.py wrote it, plus the blocks that it leaves out."""
    apart = re.findall(r"^ +Allocated Blocks: (\d+)$", target.stderr, re.MULTILINE)
    return int(struct.unpack("<Q", (folder / "told").read_bytes())[0]) + sum(map(int, apart))


def used(answer: dict[str, Any]) -> int:
    """Return the used blocks of all block sizes; check that they equal those of all heaps."""
    blocks = sum(row["used_count"] for row in answer["rows"])
    assert blocks == sum(heap["blocks"] for heap in answer["mimalloc"]["heaps"])
    assert sum(row["pools"] for row in answer["rows"]) == sum(
        heap["page_count"] for heap in answer["mimalloc"]["heaps"]
    )
    return int(blocks)


@every_build
@pytest.mark.parametrize("objects", [300, 30_000])
def test_blocks(release: str, environment: dict[str, str], objects: int, rng: random.Random, tmp_path: Path) -> None:
    """Check sys.getallocatedblocks(), to the block, after random allocations and deletions, and the same in a kernel
    core."""
    with running(blocks_program(release, rng, tmp_path, objects, 0), tmp_path, environment) as target:
        answer = ask("pools", str(target.pid))
        assert used(answer) == told(tmp_path, target)
        assert ask("check", str(target.pid))["ok"] and answer["damage"] == []
        after = ask("pools", target.as_form(KERNEL_CORE))
    assert (after["rows"], after["mimalloc"]) == (answer["rows"], answer["mimalloc"])


# The raw blocks of 3.15's ended threads are counted nowhere.
@pytest.mark.parametrize("release", [release for release in FREE_THREADED if release != "3.15t"])
def test_blocks_of_threads(release: str, rng: random.Random, tmp_path: Path) -> None:
    """Check blocks that threads freed for each other, and the pages of ended threads, which the interpreter counts
    too."""
    with running(blocks_program(release, rng, tmp_path, 20_000, 6), tmp_path) as target:
        answer = ask("pools", str(target.pid))
        checked = ask("check", str(target.pid))
    assert sum(heap["abandoned"] for heap in answer["mimalloc"]["heaps"]) > 0
    assert used(answer) == told(tmp_path, target)
    assert checked["ok"] and not checked["damage"]


@every_build
def test_without_symbols(release: str, environment: dict[str, str], rng: random.Random, tmp_path: Path) -> None:
    """Check a copy of libpython, or of the program that it is linked into, without symbols."""
    program = blocks_program(release, rng, tmp_path, 5000, 0)
    interpreter = interpreter_of(release)
    if interpreter.library != interpreter.executable:
        library = {"LD_LIBRARY_PATH": str(stripped_library(interpreter))}
    else:
        program[0] = str(tmp_path / Path(interpreter.executable).name)
        subprocess.run(["strip", "--strip-all", interpreter.executable, "-o", program[0]], check=True)
        library = {"PYTHONHOME": str(Path(interpreter.executable).parent.parent)}
    with running(program, tmp_path, {**environment, **library}) as target:
        assert used(ask("pools", str(target.pid))) == told(tmp_path, target)
        assert ask("pyobjects", str(target.pid))["total"]["count"] > 5000 // 4


@every_build
def test_ledger(release: str, environment: dict[str, str], rng: random.Random, tmp_path: Path) -> None:
    """Check that mimalloc's lines add up, that all lines add up to the kernel's figure, and that used bytes are
    those of ``heap pools``."""
    with running(blocks_program(release, rng, tmp_path, 20_000, 0), tmp_path, environment) as target:
        answer, pools = ask("", str(target.pid)), ask("pools", str(target.pid))
        rss = kernel.rollup(target.pid)[0]
    lines = {line["id"]: line for line in answer["ledger"]}
    parts = [line for line in answer["ledger"] if line["parent"] == "mimalloc"]
    for key in ("virtual", "resident", "swapped"):
        assert lines["mimalloc"][key] == sum(line[key] for line in parts)
    assert lines["mimalloc.used"]["virtual"] == sum(row["size"] * row["used_count"] for row in pools["rows"])
    assert sum(line["resident"] for line in answer["ledger"] if line["parent"] is None) == rss == answer["rss"]["bytes"]
    assert lines["unexplained"]["resident"] == 0


@every_build
def test_every_reachable_object(release: str, environment: dict[str, str], rng: random.Random, tmp_path: Path) -> None:
    """Check that no object that gc.get_objects() leads to has a wrong type, that at most one in a thousand has none,
    and that a core gives the same types."""
    program = release_program(release, "closure", rng.getrandbits(32), 2000, tmp_path / "truth")
    with running(program, tmp_path, environment) as target:
        reached = reached_in_heaps(target.pid, tmp_path / "truth")
        sample = some(reached, rng)
        check_objects(str(target.pid), reached, sample)
        rows = census(str(target.pid))
        core = target.as_form(KERNEL_CORE)
        assert census(core) == rows
        check_objects(core, reached, sample[: SAMPLE // 4])
    check_counts(reached, rows)


@every_build
def test_exactly_the_new_objects(release: str, environment: dict[str, str], rng: random.Random, tmp_path: Path) -> None:
    """Check every type between two stops, to the object and the byte, with its buffers; no other type changed."""
    arguments = (rng.getrandbits(32), 1500, 20_000, tmp_path / "truth")
    with running(release_program(release, "population", *arguments), tmp_path, environment) as target:
        check_new_objects(target, tmp_path / "truth", release)


@every_build
def test_books(release: str, environment: dict[str, str], rng: random.Random, tmp_path: Path) -> None:
    """Check that objects, buffers and the rest add up to the used blocks; hardly any is unclassified."""
    program = release_program(release, "closure", rng.getrandbits(32), 2000, tmp_path / "truth")
    with running(program, tmp_path, environment) as target:
        answer = ask("pyobjects", str(target.pid), "--top=1000000")
    total = answer["total"]["own"] + answer["total"]["buffers"]
    rest = [answer[key]["bytes"] for key in ("free_lists", "interpreter", "unclassified", "other_chunks")]
    assert total + sum(rest) + sum(root["bytes"] for root in answer["roots"]) == answer["all_used"]["bytes"]
    assert answer["unclassified"]["bytes"] <= answer["all_used"]["bytes"] // 1000


@every_build
def test_holes_hold_nothing(release: str, environment: dict[str, str], rng: random.Random, tmp_path: Path) -> None:
    """Check that no hole has an object in it, that each has the resident bytes that the kernel counts, and that
    together they are at most the free bytes of the ledger; a core has the same holes."""
    program = release_program(release, "closure", rng.getrandbits(32), 2000, tmp_path / "truth")
    with running(program, tmp_path, environment) as target:
        answer, ledger = ask("holes", str(target.pid), "--min=1", "--top=100000"), ask("", str(target.pid))["ledger"]
        own = [row for row in answer["rows"] if row["allocator"] == "mimalloc"]
        holes = sorted(own, key=lambda row: int(row["address"]))
        resident = [present(target.pid, row["address"], row["size"]) for row in holes]
        objects = sorted(closure(tmp_path / "truth"))
        in_core = ask("holes", target.as_form(KERNEL_CORE), "--min=1", "--top=100000")["rows"]
    lines = {line["id"]: line for line in ledger}
    assert len(holes) > 100 and [row["resident"] for row in holes] == resident
    assert sum(row["size"] for row in holes) <= lines["mimalloc.free"]["virtual"]
    for row in holes:
        place = bisect.bisect_left(objects, row["address"])
        assert place == len(objects) or objects[place] >= row["address"] + row["size"], row
    assert {(row["address"], row["size"]) for row in in_core if row["allocator"] == "mimalloc"} == {
        (row["address"], row["size"]) for row in holes
    }


def present(pid: int, start: int, size: int) -> int:
    """Return the bytes of a process's pages that are completely in [start, start + size), without zero pages."""
    first, end = -(-start // kernel.PAGE) * kernel.PAGE, (start + size) // kernel.PAGE * kernel.PAGE
    return kernel.PAGE * sum(page.is_there for page in kernel.pages(pid, first, max(first, end)))
