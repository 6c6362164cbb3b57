"""``heap pyobjects`` on populations of known size, and ``heap at`` on every object that a process can reach."""

from __future__ import annotations

import bisect
import functools
import json
import random
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import kernel
import pytest
from elftools.elf.elffile import ELFFile
from library import heap_of
from programs import FORMS, KINDS, Running, ask, python_program, running

from gdbheap.answers.at import at

# CPython 3.11: the values of a managed dict begin where the word 32 bytes before the object points; the byte before
# them says how far before that their block begins.
VALUES = -32
POOL = 16 * 1024


def population(kind: str, rng: random.Random, directory: Path, most: int, largest: int) -> Any:
    """Start population.py; its truth is ``directory``/truth."""
    arguments = (rng.getrandbits(32), most, largest, directory / "truth")
    return running(python_program(kind, "population", *arguments), directory)


def census(target: str) -> dict[str, tuple[int, int, int]]:
    """Return {type: (count, bytes, buffers)} of ``heap pyobjects``, all types, and check that the total adds up."""
    answer = ask("pyobjects", target, "--top=1000000")
    rows = {row["type"]: (row["count"], row["bytes"], row["buffers"]) for row in answer["types"]}
    assert len(rows) == len(answer["types"]), "a type with two rows"
    total = tuple(answer["total"][key] for key in ("count", "bytes", "buffers"))
    assert total == tuple(map(sum, zip(*rows.values())))
    return rows


def difference(before: dict[str, Any], after: dict[str, Any]) -> dict[str, tuple[int, int, int]]:
    """Return what came to each type; types that did not change are left out."""
    none = (0, 0, 0)
    names = before.keys() | after.keys()
    changes = {n: tuple(b - a for a, b in zip(before.get(n, none), after.get(n, none))) for n in names}
    return {n: change for n, change in changes.items() if any(change)}


def values_bytes(pid: int, thing: int) -> int:
    """Return the size of the block of an object's attribute values, by its pool's header; 0 without one."""
    values = kernel.read_u64(pid, thing + VALUES)
    if not values:
        return 0
    block = values - kernel.read(pid, values - 1, 1)[0]
    (szidx,) = struct.unpack("<I", kernel.read(pid, (block & -POOL) + 36, 4))
    return 16 * (int(szidx) + 1)


def truth(
    target: Running, path: Path, values: Callable[[int, int], int] = values_bytes
) -> dict[str, tuple[int, int, int, int]]:
    """Return {type: (count, bytes, buffers, chunks)}: what the program wrote, and attributes' values."""
    told = json.loads(path.read_text())
    types = {name: tuple(row) for name, row in told["types"].items()}
    for name, addresses in told["managed"].items():
        count, size, buffers, chunks = types[name]
        types[name] = (count, size, buffers + sum(values(target.pid, a) for a in addresses), chunks)
    return types


def check(found: dict[str, tuple[int, int, int]], expected: dict[str, tuple[int, int, int, int]]) -> None:
    """Compare: the same types, to the object, and to the byte but for 16 bytes that a chunk of malloc may have more."""
    assert {name: row[0] for name, row in found.items()} == {name: row[0] for name, row in expected.items()}
    for name, (_, size, buffers, chunks) in expected.items():
        more = (found[name][1] - size, found[name][2] - buffers)
        assert min(more) >= 0 and sum(more) <= 16 * chunks, (name, found[name], expected[name])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("most", "largest"), [(40, 20_000), (3000, 20_000), (20_000, 20)])
def test_exactly_the_new_objects(kind: str, most: int, largest: int, rng: random.Random, tmp_path: Path) -> None:
    """Between two stops: every population to the object and the byte, with its buffers, and no other type changed."""
    with population(kind, rng, tmp_path, most, largest) as target:
        before = census(str(target.pid))
        target.go_on()
        after = census(str(target.pid))
        expected = truth(target, tmp_path / "truth")
    check(difference(before, after), expected)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", KINDS)
def test_own_classes(kind: str, form: str, rng: random.Random, tmp_path: Path) -> None:
    """The program's own classes hold exactly its populations, in a process and in both kinds of core."""
    with population(kind, rng, tmp_path, 1000, 20_000) as target:
        before = census(str(target.pid))
        target.go_on()
        expected = {n: row for n, row in truth(target, tmp_path / "truth").items() if n.startswith("__main__.")}
        after = census(target.as_form(form))
    assert len(expected) == 12
    check({n: row for n, row in difference(before, after).items() if n in expected}, expected)


def closure(path: Path) -> dict[int, str]:
    """Return what closure.py wrote: {address: type}."""
    pairs = (line.split(" ", 1) for line in path.read_text().splitlines())
    return {int(address): kind for address, kind in pairs}


class Heaps:
    """The memory where objects are allocated: anonymous mappings without the .bss that follows a file's data."""

    def __init__(self, pid: int) -> None:
        mappings = kernel.maps(pid)
        first = {m.path: m.start for m in reversed(mappings) if m.inode}
        own = []
        for before, mapping in zip([mappings[0], *mappings], mappings):
            if mapping.path == "[heap]":
                own.append((mapping.start, mapping.end))
            elif not mapping.path:
                # A .bss and an arena that follows it are one mapping to the kernel.
                follows = before.inode and before.end == mapping.start and before.perms.startswith("rw")
                start = bss_end(before.path, first[before.path]) if follows else mapping.start
                own.append((max(start, mapping.start), mapping.end))
        self.ranges = sorted(own)

    def __contains__(self, address: int) -> bool:
        place = bisect.bisect_right(self.ranges, (address, 1 << 64)) - 1
        return place >= 0 and self.ranges[place][0] <= address < self.ranges[place][1]


@functools.cache
def bss_end(path: str, base: int) -> int:
    """Return where the data of an ELF file mapped at ``base`` ends, its .bss included."""
    with open(path, "rb") as file:
        elf = ELFFile(file)
        ends = [s["p_vaddr"] + s["p_memsz"] for s in elf.iter_segments("PT_LOAD")]
        end = max(ends) + (base if elf["e_type"] == "ET_DYN" else 0)
    return int(end + 4095) & ~4095


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", KINDS)
def test_every_reachable_object(kind: str, form: str, rng: random.Random, tmp_path: Path) -> None:
    """A random part of the closure of gc.get_objects(): address and type, 99.9 % of it at least."""
    program = python_program(kind, "closure", rng.getrandbits(32), 4000, tmp_path / "truth")
    with running(program, tmp_path) as target:
        heaps = Heaps(target.pid)
        reached = {a: name for a, name in closure(tmp_path / "truth").items() if a in heaps}
        sample = rng.sample(sorted(reached), min(len(reached), 4000))
        with heap_of(target.as_form(form)) as heap:
            found = {address: at(heap, address).object for address in sample}
    wrong = [(hex(a), reached[a], found[a]) for a in sample if not same(found[a], a, reached[a])]
    assert len(wrong) <= len(sample) // 1000, wrong[:20]


def same(found: Any, address: int, kind: str) -> bool:
    """Return whether the answer names this object and this type."""
    return found is not None and (found.address, found.type) == (address, kind)


@pytest.mark.parametrize("kind", KINDS)
def test_census_holds_at_least_what_is_reachable(kind: str, rng: random.Random, tmp_path: Path) -> None:
    """No type has fewer objects than can be reached of it, but for one in a thousand of all."""
    program = python_program(kind, "closure", rng.getrandbits(32), 4000, tmp_path / "truth")
    with running(program, tmp_path) as target:
        heaps = Heaps(target.pid)
        reached = [name for a, name in closure(tmp_path / "truth").items() if a in heaps]
        rows = census(str(target.pid))
    short = {n: reached.count(n) - rows.get(n, (0, 0, 0))[0] for n in set(reached)}
    assert sum(max(0, missing) for missing in short.values()) <= len(reached) // 1000, short
