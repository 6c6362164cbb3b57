"""Shares of RSS are of resident bytes in every command, and each large holder has its own row and finding."""

from __future__ import annotations

import random
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from support.kernel import rollup
from support.programs import KINDS, SOURCES, ask, gdbheap, interpreter_of, python_program, running

MIB = 1 << 20
COMMANDS = (
    ["owners"], ["owners", "--by=block"], ["retained"], ["retained", "--by=type"], ["retained", "--by=module"],
    ["pyobjects"],
)  # fmt: skip
PLAIN = re.compile(r"resident, ([\d.]+) % of RSS\)")


def kinds_of(pid: str) -> dict[str, int]:
    """Return the number of blocks of C code of each kind."""
    return {row["type"]: row["count"] for row in ask("chunks", pid, "--by=type", "--top=all")["rows"]}


def test_memory_that_was_never_touched(rng: random.Random, tmp_path: Path) -> None:
    """Check that resident bytes are shown beside larger sizes, with their share."""
    size = rng.randrange(60, 90)
    with running(python_program(KINDS[0], "untouched", size), tmp_path) as target:
        pid = str(target.pid)
        blocks = ask("owners", pid, "--by=block")["rows"]
        address = next(row["address"] for row in blocks if row["size"] >= size * MIB)
        texts = {" ".join(words): gdbheap(words[0], pid, *words[1:]).stdout for words in COMMANDS}
        texts["why"] = gdbheap("why", pid, hex(address)).stdout
        texts["retained ADDRESS"] = gdbheap("retained", pid, hex(address)).stdout
        rss = rollup(target.pid)[0]
    # A share of all bytes would be above 100 %, or unknown.
    assert rss < size * MIB
    sizes = "|".join(str(number) for number in range(size, size + 4))
    for name, text in texts.items():
        lines = [line for line in text.splitlines() if re.search(rf"\b(?:{sizes})\.\d MiB", line)]
        assert lines and "resident" in text, name
        told = [share for line in lines for share in PLAIN.findall(line)]
        cells = [share for line in lines for share in shares_of(text, line)]
        assert told + cells and all(float(share) <= 100 for share in told + cells), (name, told, cells)


def shares_of(text: str, line: str) -> list[str]:
    """Return the share of RSS in a row of a table, by the end of its column."""
    titles = [title for title in text.splitlines() if "%RSS" in title]
    end = titles[0].index("%RSS") + len("%RSS") if titles else 0
    return [line[:end].split()[-1]] if end and not line.endswith(".") and len(line) >= end else []


def test_tables_of_tracemalloc(rng: random.Random, tmp_path: Path) -> None:
    """Check that the tables of tracemalloc are one holder, and do not also count for the interpreter."""
    count = rng.randrange(100_000, 200_000)
    with running(python_program(KINDS[0], "traces_blocks", count), tmp_path) as target:
        pid = str(target.pid)
        page, held, kept, several = ask("", pid), ask("owners", pid), ask("retained", pid), ask("processes", pid)
        (table,) = [row for row in ask("owners", pid, "--by=block")["rows"] if row["chain"].startswith("tracemalloc")]
        chain = ask("why", pid, hex(table["address"]))["rows"]
    rows = {row["path"]: row for row in held["rows"]}
    (finding,) = [row for row in page["findings"] if row["id"] == "tracemalloc"]
    own = rows["tracemalloc"]
    assert own["kind"] == "tracemalloc" and own["blocks"] >= 2 * count
    assert abs(own["resident"] - finding["bytes"]) <= 0.05 * finding["bytes"]
    assert sum(row["bytes"] for row in held["rows"]) <= held["total"]["bytes"]
    assert rows["Python itself"]["bytes"] < 0.2 * own["bytes"]
    assert page["holders"][0]["path"] == "tracemalloc"
    assert all(row["figures"].get("path") != "tracemalloc" for row in page["findings"] if row["id"] == "holder")
    (row,) = [row for row in kept["rows"] if row["chain"] == "tracemalloc"]
    assert abs(row["retained"] - own["bytes"]) <= 0.05 * own["bytes"]
    assert chain[0]["edge"] == "tracemalloc"
    assert several["rows"][0]["holders"][0]["path"] == "tracemalloc"


def test_two_holders_of_one_size(rng: random.Random, tmp_path: Path) -> None:
    """Check that each has a finding, and that the list of processes names the largest finding, and the largest
    holder as on its page."""
    count = rng.randrange(60_000, 90_000)
    with running(python_program(KINDS[0], "two_dicts", count), tmp_path) as target:
        pid = str(target.pid)
        page, several, text = ask("", pid), ask("processes", pid), gdbheap("processes", pid).stdout
    found = [row for row in page["findings"] if row["id"] == "holder"]
    assert len(found) == 2
    assert {name for name in ("first", "second") for row in found if f"held by {name} " in row["text"]} == {
        "first", "second",
    }  # fmt: skip
    (member,) = several["rows"]
    assert member["heap"]["finding"]["bytes"] >= 0.9 * max(row["bytes"] for row in page["findings"])
    assert member["holders"][0]["resident"] == max(row["resident"] for row in member["holders"])
    assert "Largest holder: " in text and not re.search(r" -$", text.splitlines()[-4])


def test_strings_with_more_room_than_text(rng: random.Random, tmp_path: Path) -> None:
    """Check that room in many small blocks is a finding too, also in a large program; shrinking them frees the
    promised bytes, and each of the buffers has a name."""
    if shutil.which("g++") is None:
        pytest.skip("no g++")
    program, count = str(tmp_path / "small_room"), rng.randrange(260_000, 280_000)
    subprocess.run(["g++", "-std=c++14", "-O1", str(SOURCES / "small_room.cc"), "-o", program], check=True)
    with running([program, str(count), str(rng.randrange(110, 200))], tmp_path) as target:
        pid = str(target.pid)
        spare = int(re.findall(r"spare (\d+)", target.stderr)[0])
        (found,) = [row for row in ask("", pid)["findings"] if row["id"] == "capacity"]
        kinds, shown = kinds_of(pid), gdbheap("chunks", pid, "--by=type").stdout
        before = rollup(target.pid)[0]
        target.go_on()
        freed = before - rollup(target.pid)[0]
    assert kinds["std::string buffer"] == count
    assert 0.8 * spare <= found["bytes"] <= spare and "shrink_to_fit()" in found["advice"]
    assert 0.8 * found["bytes"] <= freed
    assert "filled" in shown.splitlines()[2]


def test_bytes_of_what_is_lost(rng: random.Random, tmp_path: Path) -> None:
    """Check that a row's bytes are those of its blocks by number and size, and of their buffers, which have a
    column."""
    with running(python_program(KINDS[0], "garbage", rng.getrandbits(30), tmp_path / "truth"), tmp_path) as target:
        found, text = ask("unreachable", str(target.pid)), gdbheap("unreachable", str(target.pid)).stdout
    assert found["rows"]
    assert all(row["count"] * row["size"] + row["buffers"] == row["bytes"] for row in found["rows"])
    assert not any(row["buffers"] for row in found["rows"]) or re.search(r"^ *count +each +buffers +bytes", text, re.M)


# Blocks of 1 MiB, of which only every fourth is touched: with "cycles" in uncollected cycles, otherwise in two lists.
PARTLY_TOUCHED = """
import gc, sys
gc.disable()
class Node: pass
cache, recent = [], []
def make(count):
    for number in range(count):
        one, other = Node(), Node()
        one.other, other.other = other, one
        one.block = bytes(1 << 20) if number % 4 else b"x" * (1 << 20)
        if sys.argv[1] == "lists":
            one.other = other.other = None
            cache.append(one.block)
            recent.append(one.block)
make({})
sys.stdin.readline()
"""


@pytest.mark.parametrize("how", ["cycles", "lists"])
def test_one_measure_for_blocks_that_are_partly_touched(how: str, rng: random.Random, tmp_path: Path) -> None:
    """Check that cycles have no more bytes than are resident, and that dropping all holders of blocks frees what they
    hold of RSS."""
    count = 4 * rng.randrange(12, 24)
    command = [interpreter_of(KINDS[0]), "-c", PARTLY_TOUCHED.format(count), how]
    with running(command, tmp_path) as target:
        page = ask("", str(target.pid))
    (found,) = [row for row in page["findings"] if row["id"] == {"cycles": "cycles", "lists": "holder"}[how]]
    touched = count // 4 << 20
    assert touched <= found["bytes"] <= touched + (1 << 20) + count * (8 << 10)
    size = f"{found['bytes'] / (1 << 20):.1f} MiB"
    if how == "cycles":
        told = re.search(r"most of type bytes \(([\d.]+) MiB\)", found["text"])
        # A figure with one decimal.
        assert told and touched - (1 << 16) <= float(told[1]) * (1 << 20) <= found["bytes"] + (1 << 16), found["text"]
    else:
        assert re.search(rf"dropping all of them frees {size}", found["text"]), found["text"]


# Many small sessions, and one object in them with a block that is larger than the others, but small in comparison; or,
# with "alike", objects that all have such a block.
ODD_BLOCK = """
import sys
class Box: pass
sessions = {{}}
def make():
    for number in range({}):
        box = sessions[number] = Box()
        box.inner = Box()
        box.inner.inner = Box()
        if sys.argv[1] == "alike":
            box.inner.inner.data = b"x" * 30_000 + b"%d" % number
        else:
            box.inner.inner.data = [str(number * other) for other in range(300)]
    if sys.argv[1] != "alike":
        sessions[5].odd = Box()
        sessions[5].odd.inner = Box()
        sessions[5].odd.inner.data = b"x" * 200_000
make()
sys.stdin.readline()
"""


@pytest.mark.parametrize("how", ["odd", "alike"])
def test_largest_block_that_explains_nothing(how: str, rng: random.Random, tmp_path: Path) -> None:
    """Check that the path to the largest block is told if all blocks have such paths, and not if the block is one of
    many others and small in comparison with the whole: then the next command is not about this block either."""
    command = [interpreter_of(KINDS[0]), "-c", ODD_BLOCK.format(rng.randrange(600, 800)), how]
    with running(command, tmp_path) as target:
        page = ask("", str(target.pid))
    (found,) = [row for row in page["findings"] if row["id"] == "holder"]
    assert "held by sessions " in found["text"]
    is_told = re.search(r"its largest block is at \[\d+\] \.inner \.inner \.data", found["text"]) is not None
    assert is_told == (how == "alike") == any(" why " in line for line in found["commands"]), found
    assert ".odd" not in found["text"]
