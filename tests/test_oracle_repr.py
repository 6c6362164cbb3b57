"""The text of ``heap at`` against repr(), evaluated in the target itself, for random nested values."""

from __future__ import annotations

import random
import struct
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile
from support.library import heap_of
from support.programs import FORMS, ask, running
from support.repr_programs import CUT, every_python, program, same, truth, values

from gdbheap.allocators.pymalloc.allocator import PymallocAllocator
from gdbheap.contents.python.text.repr import BRIEF, Limits

pytestmark = pytest.mark.cases(5)

WIDE = Limits(length=100_000, value=20_000, items=1000, depth=30, reads=100_000)


def texts(target: str, addresses: list[int], limits: Limits) -> list[str | None]:
    """Return the text of the object at each address."""
    with heap_of(target) as heap:
        return [heap.python.objects.repr.text(address, limits) for address in addresses]


def wrong(pairs: list[tuple[int, str]], found: list[str | None]) -> list[tuple[str, str, str | None]]:
    """Return the pairs that differ."""
    return [(hex(a), text[:300], got and got[:300]) for (a, text), got in zip(pairs, found) if not same(text, got, a)]


@every_python
@pytest.mark.parametrize("form", FORMS)
def test_texts_equal_repr(python: str, form: str, rng: random.Random, tmp_path: Path) -> None:
    """Check that with wide limits nothing is cut, and that every character is the target's own."""
    with running(values(python, rng, tmp_path, 600), tmp_path) as target:
        pairs = truth(tmp_path)
        found = texts(target.as_form(form), [address for address, _ in pairs], WIDE)
    assert len(pairs) > 500
    assert wrong(pairs, found) == []
    assert not any(CUT in text for text in found if text)


@every_python
def test_texts_of_other_things(python: str, rng: random.Random, tmp_path: Path) -> None:
    """Check that a cut text states its length, that functions state their place, and that strings that were never
    made ready are read."""
    with running(program(python, "things", rng.getrandbits(32), tmp_path / "truth"), tmp_path) as target:
        pairs = truth(tmp_path)
        found = texts(str(target.pid), [address for address, _ in pairs], Limits())
    assert wrong(pairs, found) == []


@every_python
def test_default_limits(python: str, rng: random.Random, tmp_path: Path) -> None:
    """Check that an uncut text is exact, that no text is much longer than the limit, and that a single read gives
    one."""
    with running(values(python, rng, tmp_path, 300), tmp_path) as target:
        pairs = truth(tmp_path)
        addresses = [address for address, _ in pairs]
        for limits in (Limits(), BRIEF, Limits(reads=rng.randrange(1, 60)), Limits(depth=rng.randrange(4))):
            found = texts(str(target.pid), addresses, limits)
            assert max(len(text) for text in found if text) < limits.length + 10 * limits.value + 200
            whole = [(pair, text) for pair, text in zip(pairs, found) if text and CUT not in text]
            assert wrong([pair for pair, _ in whole], [text for _, text in whole]) == []


@every_python
def test_the_command(python: str, rng: random.Random, tmp_path: Path) -> None:
    """Check that ``heap at`` names the object and prints its text, for a process."""
    with running(values(python, rng, tmp_path, 60), tmp_path) as target:
        pairs = truth(tmp_path)
        answers = [(pair, ask("at", str(target.pid), hex(pair[0]))["object"]) for pair in rng.sample(pairs, 8)]
    # Small numbers and classes of the interpreter are in no allocator's blocks.
    shown = [(pair, answer) for pair, answer in answers if answer]
    assert shown
    for (address, text), answer in shown:
        assert answer["address"] == address
        assert CUT in (answer["text"] or "") or same(text, answer["text"], address)


SMALLEST_POOL, POOL_HEADER = 4096, 48


def pooled(core: Path, addresses: list[int]) -> list[int]:
    """Return the addresses that are in pools. The others may include the types without which no object can be
    recognised.
    """
    with heap_of(str(core)) as heap:
        return [
            address
            for address in addresses
            if heap.allocator(PymallocAllocator).pymalloc.pools.find(heap.target.space, address)
        ]


def damage(core: Path, addresses: list[int], rng: random.Random) -> None:
    """Overwrite words in and around the objects: with noise, with small numbers, with addresses of other objects."""
    with core.open("rb") as file:
        segments = [(s["p_vaddr"], s["p_filesz"], s["p_offset"]) for s in ELFFile(file).iter_segments("PT_LOAD")]
    with core.open("r+b") as file:
        for address in addresses:
            place = address + 8 * rng.randrange(-4, 12)
            if place % SMALLEST_POOL < POOL_HEADER:
                continue  # a pool's header is no part of an object
            offset = next((place - start + at for start, size, at in segments if start <= place < start + size), None)
            if offset is not None:
                word = rng.choice((rng.getrandbits(64), rng.randrange(100), rng.choice(addresses), 1 << 63, 0))
                file.seek(offset)
                file.write(struct.pack("<Q", word))


@every_python
def test_damaged_objects(python: str, rng: random.Random, tmp_path: Path) -> None:
    """Check that torn objects have a text or none, whatever their fields contain; nothing is raised, nothing is
    endless."""
    with running(values(python, rng, tmp_path, 600), tmp_path) as target:
        pairs = truth(tmp_path)
        core = target.gcore()
        addresses = [address for address, _ in pairs]
        before = texts(str(core), addresses, Limits())
        damage(core, pooled(core, addresses), rng)
    with heap_of(str(core)) as heap:
        # The tables of types are learned before the damage.
        after = [heap.python.objects.repr.text(address) for address in addresses]
    assert before != after
    assert max(len(text) for text in after if text) < 4000
