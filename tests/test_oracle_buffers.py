"""The buffers of pyarrow's tables and polars' series: each is a block in use of its allocator, and has an owner in
Python.

They are checked against the addresses and sizes that the libraries report.
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from support.installed import python_with
from support.library import heap_of
from support.programs import gdbheap, running

POOLS = {"jemalloc": "jemalloc", "mimalloc": "libmimalloc", "system": "glibc"}
ARROW = """
import json, pyarrow, random, sys
rng = random.Random(int(sys.argv[2]))
pyarrow.set_memory_pool(getattr(pyarrow, sys.argv[1] + "_memory_pool")())
class Holder: pass
def column(count):
    kind = rng.randrange(4)
    if kind == 0:
        return list(range(count))
    if kind == 1:
        return ["text %d" % number for number in range(count)]
    if kind == 2:
        return [number * 0.5 if number % 3 else None for number in range(count)]
    return [[number, number + 1] for number in range(count)]
holders, found = [], []
for number in range(8):
    count = rng.randrange(500, 9000)
    holder = Holder()
    holder.table = pyarrow.table({"c%d" % place: column(count) for place in range(3)})
    holders.append(holder)
    for name, whole in zip(holder.table.column_names, holder.table.columns):
        for buffer in whole.chunk(0).buffers():
            if buffer is not None and buffer.size:
                found.append([buffer.address, buffer.size, id(holder.table), name])
with open(sys.argv[3], "w") as file:
    json.dump(found, file)
sys.stdin.readline()
"""
POLARS = """
import json, polars, random, sys
rng = random.Random(int(sys.argv[2]))
kept = {"s%d" % number: polars.Series(list(range(100 + rng.randrange(9000)))) for number in range(30)}
found = []
for name, one in kept.items():
    buffer = one.to_arrow().buffers()[1]
    found.append([buffer.address, buffer.size, id(one), name])
with open(sys.argv[3], "w") as file:
    json.dump(found, file)
sys.stdin.readline()
"""


def check_block(target: str, name: str, rows: list[list[int]]) -> None:
    """Check that each buffer starts a block in use of that allocator, which is at least as large."""
    with heap_of(target) as heap:
        for address, size, *_ in rows:
            block = heap.block_at(address)
            assert block is not None and (block.allocator, block.state) == (name, "used"), (hex(address), block)
            assert block.address <= address and address + size <= block.end, (hex(address), size, block)


def answers_at(target: str, places: list[int]) -> list[dict[str, Any]]:
    """Return the answers of ``heap at`` for each address, of one stop."""
    lines = "\n".join(f"at {place:#x} --json" for place in places)
    done = gdbheap("shell", target, "--max-stop=100", input=lines)
    assert done.returncode == 0, done.stderr
    found, text, decoder = [], done.stdout.lstrip(), json.JSONDecoder()
    while text:
        answer, end = decoder.raw_decode(text)
        found.append(answer)
        text = text[end:].lstrip()
    assert len(found) == len(places)
    return found


@pytest.mark.parametrize("pool", POOLS)
def test_of_pyarrow(pool: str, rng: random.Random, tmp_path: Path) -> None:
    """Check that a sample of buffers has the right table as owner, and that the column is named."""
    python, truth = python_with("pyarrow"), tmp_path / "buffers"
    with running([python, "-c", ARROW, pool, str(rng.getrandbits(30)), str(truth)], tmp_path) as target:
        rows = json.loads(truth.read_text())
        assert len(rows) > 24
        check_block(str(target.pid), POOLS[pool], rows)
        sample = rng.sample(rows, 6)
        answers = answers_at(str(target.pid), [address + rng.randrange(size) for address, size, *_ in sample])
        for (address, _size, table, name), answer in zip(sample, answers):
            owner = answer["owner"]
            assert (owner["address"], owner["type"]) == (table, "pyarrow.lib.Table"), (hex(address), answer)
            assert answer["array"] is None or answer["array"]["name"] == name


def test_of_polars(rng: random.Random, tmp_path: Path) -> None:
    """Check that the buffers are the module's jemalloc's, and that a sample is named as values of the right series."""
    python, truth = python_with("polars"), tmp_path / "buffers"
    with running([python, "-c", POLARS, "", str(rng.getrandbits(30)), str(truth)], tmp_path) as target:
        rows = json.loads(truth.read_text())
        assert len(rows) == 30
        check_block(str(target.pid), "jemalloc", rows)
        sample = rng.sample(rows, 6)
        answers = answers_at(str(target.pid), [address + rng.randrange(size) for address, size, *_ in sample])
        for (_address, _size, series, _name), answer in zip(sample, answers):
            assert (answer["array"]["what"], answer["array"]["address"]) == ("Series", series), answer
            assert answer["owner"]["type"].endswith("Series"), answer
