"""Compare ``heap pyobjects`` with the populations of tests/programs/population.py: objects and bytes must be equal."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

from reference import pymalloc

from support import kernel
from support.programs import Running, ask

# CPython 3.11: the word 32 bytes before the object points to the values of a managed dict; the byte before them is the
# distance back to the start of their block.
VALUES = -32
# 3.12: the word 24 bytes before an object is its dict, or points one byte before its values: that byte is the distance
# back to the start of their block.
DICT_OR_VALUES = -24
# Code that has run often gets its own cache.
OPCACHE = ("3.8", "3.9", "3.10")


def census(target: str) -> dict[str, tuple[int, int, int]]:
    """Return {type: (count, bytes, buffers)} of ``heap pyobjects``, all types, and check that the total adds up."""
    answer = ask("pyobjects", target, "--top=1000000")
    rows = {row["type"]: (row["count"], row["own"], row["buffers"]) for row in answer["rows"]}
    assert len(rows) == len(answer["rows"]), "a type with two rows"
    total = tuple(answer["total"][key] for key in ("count", "own", "buffers"))
    assert total == tuple(map(sum, zip(*rows.values())))
    return rows


def difference(before: dict[str, Any], after: dict[str, Any]) -> dict[str, tuple[int, int, int]]:
    """Return the growth of each type; types that did not change are left out."""
    none = (0, 0, 0)
    names = before.keys() | after.keys()
    changes = {n: tuple(b - a for a, b in zip(before.get(n, none), after.get(n, none))) for n in names}
    return {n: change for n, change in changes.items() if any(change)}


def block_size(pid: int, block: int) -> int:
    """Return the size of a block of pymalloc, by its pool's header."""
    (szidx,) = struct.unpack("<I", kernel.read(pid, (block & -pymalloc.POOL) + 36, 4))
    return 16 * (int(szidx) + 1)


def values_bytes(pid: int, thing: int) -> int:
    """Return the size of the block of an object's attribute values; 0 without one."""
    values = kernel.read_u64(pid, thing + VALUES)
    return block_size(pid, values - kernel.read(pid, values - 1, 1)[0]) if values else 0


def packed_values_bytes(pid: int, thing: int) -> int:
    """Return the size of the block of an object's attribute values in 3.12; 0 without one."""
    word = kernel.read_u64(pid, thing + DICT_OR_VALUES)
    return block_size(pid, word + 1 - kernel.read(pid, word, 1)[0]) if word & 1 else 0


def values_of(release: str) -> Callable[[int, int], int]:
    """Return a function that returns the bytes of an object's values in that release."""
    return packed_values_bytes if release == "3.12" else values_bytes


def truth(target: Running, path: Path, values: Callable[[int, int], int]) -> dict[str, tuple[int, int, int, int]]:
    """Return {type: (count, bytes, buffers, spare)}: the program's figures, and attributes' values."""
    told = json.loads(path.read_text())
    types = {name: tuple(row) for name, row in told["types"].items()}
    for name, addresses in told["managed"].items():
        count, size, buffers, spare = types[name]
        types[name] = (count, size, buffers + sum(values(target.pid, a) for a in addresses), spare)
    return types


def check(found: dict[str, tuple[int, int, int]], expected: dict[str, tuple[int, int, int, int]]) -> None:
    """Check the same types, to the object, and to the byte except for spare bytes of malloc's chunks."""
    assert {name: row[0] for name, row in found.items()} == {name: row[0] for name, row in expected.items()}
    for name, (_, size, buffers, spare) in expected.items():
        more = (found[name][1] - size, found[name][2] - buffers)
        assert min(more) >= 0 and sum(more) <= spare, (name, found[name], expected[name])


def check_new_objects(
    target: Running, path: Path, release: str, values: Callable[[int, int], int] | None = None
) -> None:
    """Let population.py continue; check that every population is found with its exact objects, bytes and buffers, and
    no other type.
    """
    before = census(str(target.pid))
    target.go_on()
    check_changes(difference(before, census(str(target.pid))), target, path, release, values)


def check_changes(
    changes: dict[str, tuple[int, int, int]],
    target: Running,
    path: Path,
    release: str,
    values: Callable[[int, int], int] | None = None,
) -> None:
    """Compare the growth of each type with the population of population.py."""
    if release in OPCACHE:
        # No code is new, and none has grown.
        assert changes.pop("code", (0, 0, 0))[:2] == (0, 0)
    check(changes, truth(target, path, values or values_of(release)))
