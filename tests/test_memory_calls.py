"""The effect of system calls on memory, by registers: against a table of pages that the calls change one by one."""

from __future__ import annotations

import random

import pytest

from gdbheap.following.growth import ExpectedMappings, MemoryCall, ReservedMemory
from gdbheap.machines.machine import THIS_MACHINE
from gdbheap.targets.mappings import Mappings

PAGE = THIS_MACHINE.page
CALLS = THIS_MACHINE.system_calls
NUMBERS = {name: number for number, name in CALLS.of_memory.items()}
PROT_NONE, PROT_READ, PROT_WRITE = 0, 1, 2
SHARED, PRIVATE, FIXED, ANONYMOUS = 1, 2, 0x10, 0x20
MAY_MOVE, TO_ADDRESS, STAYS = 1, 2, 4
DONTNEED, FREE, REMOVE, WILLNEED = 4, 8, 9, 3
NO_MEMORY = (1 << 64) - 12
BASE = 0x7F00_0000_0000


def call(memory: ReservedMemory, name: str, result: int, *arguments: int) -> MemoryCall:
    """Return the effect of a call with these arguments and this result."""
    registers = [0] * 40
    for place, value in zip(CALLS.arguments, arguments):
        registers[place] = value
    registers[CALLS.result] = result
    return memory.read(NUMBERS[name], registers)


def fresh() -> ReservedMemory:
    """Return the state of a process without reserved memory, whose break is not known."""
    return ReservedMemory(THIS_MACHINE, Mappings([]))


# Each call with its result, and what it does.
TABLE: list[tuple[str, int, tuple[int, ...], MemoryCall]] = [
    ("mmap", BASE, (0, PAGE + 1, PROT_READ | PROT_WRITE, PRIVATE | ANONYMOUS),
     MemoryCall("mmap", 2 * PAGE, mapped=(BASE, BASE + 2 * PAGE))),
    ("mmap", BASE, (BASE, PAGE, PROT_READ, PRIVATE | ANONYMOUS | FIXED),
     MemoryCall("mmap", PAGE, mapped=(BASE, BASE + PAGE), replaces=True)),
    ("mmap", BASE, (0, PAGE, PROT_NONE, PRIVATE | ANONYMOUS),
     MemoryCall("reserve", PAGE, mapped=(BASE, BASE + PAGE))),
    ("mmap", BASE, (0, PAGE, PROT_READ, PRIVATE), MemoryCall("mmap.file", PAGE, mapped=(BASE, BASE + PAGE))),
    ("mmap", BASE, (0, PAGE, PROT_NONE, SHARED | ANONYMOUS),
     MemoryCall("mmap.file", PAGE, mapped=(BASE, BASE + PAGE))),
    ("mmap", NO_MEMORY, (0, PAGE, PROT_READ, PRIVATE | ANONYMOUS), MemoryCall("failed", 0)),
    ("munmap", 0, (BASE, 3 * PAGE - 1), MemoryCall("munmap", 3 * PAGE, unmapped=(BASE, BASE + 3 * PAGE))),
    # Grown in place, moved, shrunk, and the same size again.
    ("mremap", BASE, (BASE, PAGE, 3 * PAGE, 0),
     MemoryCall("mremap", 2 * PAGE, mapped=(BASE, BASE + 3 * PAGE), unmapped=(BASE, BASE + PAGE))),
    ("mremap", 2 * BASE, (BASE, PAGE, PAGE + 1, MAY_MOVE | TO_ADDRESS),
     MemoryCall("mremap", PAGE, mapped=(2 * BASE, 2 * BASE + 2 * PAGE), unmapped=(BASE, BASE + PAGE), replaces=True)),
    ("mremap", BASE, (BASE, 3 * PAGE, PAGE, 0),
     MemoryCall("mremap.shrink", 2 * PAGE, mapped=(BASE, BASE + PAGE), unmapped=(BASE, BASE + 3 * PAGE))),
    ("mremap", 2 * BASE, (BASE, PAGE, PAGE, MAY_MOVE),
     MemoryCall("other", 0, mapped=(2 * BASE, 2 * BASE + PAGE), unmapped=(BASE, BASE + PAGE))),
    # The old range stays mapped: with MREMAP_DONTUNMAP, and if shared memory of 0 bytes is mapped again.
    ("mremap", 2 * BASE, (BASE, PAGE, PAGE, MAY_MOVE | STAYS),
     MemoryCall("mremap", PAGE, mapped=(2 * BASE, 2 * BASE + PAGE))),
    ("mremap", 2 * BASE, (BASE, 0, PAGE, MAY_MOVE), MemoryCall("mremap", PAGE, mapped=(2 * BASE, 2 * BASE + PAGE))),
    ("madvise", 0, (BASE, PAGE + 1, DONTNEED), MemoryCall("madvise", 2 * PAGE)),
    ("madvise", 0, (BASE, PAGE, FREE), MemoryCall("madvise", PAGE)),
    ("madvise", 0, (BASE, PAGE, REMOVE), MemoryCall("madvise", PAGE)),
    ("madvise", 0, (BASE, PAGE, WILLNEED), MemoryCall("other", PAGE)),
]  # fmt: skip


@pytest.mark.parametrize(("name", "result", "arguments", "effect"), TABLE)
def test_one_call(name: str, result: int, arguments: tuple[int, ...], effect: MemoryCall) -> None:
    """Check the kind, the bytes and the ranges of a call."""
    assert call(fresh(), name, result, *arguments) == effect


def test_break(rng: random.Random) -> None:
    """Check that the break moves by bytes, that whole pages are mapped, and that the first call only tells it."""
    memory, at = fresh(), BASE
    assert call(memory, "brk", at) == MemoryCall("other", 0)
    for _ in range(200):
        before, at = at, BASE + rng.randrange(40 * PAGE)
        found = call(memory, "brk", at)
        low, high = sorted(-(-end // PAGE) * PAGE for end in (before, at))
        kind = "brk" if at > before else "brk.shrink" if at < before else "other"
        assert (found.id, found.bytes) == (kind, abs(at - before))
        if kind != "other":
            assert (found.mapped, found.unmapped) == (((low, high), None) if at > before else (None, (low, high)))
    assert call(memory, "brk", at) == MemoryCall("other", 0)


def test_reserved_pages(rng: random.Random) -> None:
    """Check mprotect against a set of reserved pages: committing counts what was reserved, decommitting what was
    not; reading alone changes nothing."""
    memory, pages, count = fresh(), set[int](), 60
    for _ in range(400):
        first = rng.randrange(count)
        last = rng.randrange(first + 1, count + 1)
        ranged, start, size = set(range(first, last)), BASE + first * PAGE, (last - first) * PAGE - rng.randrange(PAGE)
        kind = rng.choice(["reserve", "map", "unmap", "commit", "decommit", "read"])
        if kind in ("reserve", "map"):
            access = PROT_NONE if kind == "reserve" else PROT_READ
            call(memory, "mmap", start, start, size, access, PRIVATE | ANONYMOUS | FIXED)
        elif kind == "unmap":
            call(memory, "munmap", 0, start, size)
        else:
            access = {"commit": PROT_READ | PROT_WRITE, "decommit": PROT_NONE, "read": PROT_READ}[kind]
            found = call(memory, "mprotect", 0, start, size, access)
            hit = len(ranged & pages) * PAGE
            if kind == "commit":
                assert found == MemoryCall("commit" if hit else "other", hit)
            elif kind == "decommit":
                assert found == MemoryCall("decommit", len(ranged) * PAGE - hit)
            else:
                assert found == MemoryCall("other", 0)
        if kind in ("reserve", "decommit"):
            pages |= ranged
        elif kind != "read":
            pages -= ranged


def test_expected_pages(rng: random.Random) -> None:
    """Check that the expected mappings after calls in their order are those of a set of pages."""
    first = set(rng.sample(range(50), 20))
    expected = ExpectedMappings([(BASE + page * PAGE, BASE + (page + 1) * PAGE) for page in first])
    pages = set(first)
    for _ in range(300):
        start = rng.randrange(50)
        end = rng.randrange(start + 1, 51)
        span = (BASE + start * PAGE, BASE + end * PAGE)
        ranged = set(range(start, end))
        if rng.random() < 0.5:
            expected.add(MemoryCall("mmap", 0, mapped=span, replaces=True), False)
            pages |= ranged
        else:
            expected.add(MemoryCall("munmap", 0, unmapped=span), False)
            pages -= ranged
    found = {page for low, high in expected.ranges() for page in range((low - BASE) // PAGE, (high - BASE) // PAGE)}
    assert found == pages


def test_a_mapping_told_before_the_unmapping(rng: random.Random) -> None:
    """Check two calls of two threads that are told in the wrong order: the newer mapping stays."""
    span = (BASE, BASE + rng.randrange(1, 9) * PAGE)
    expected = ExpectedMappings([span])
    expected.add(MemoryCall("mmap", 0, mapped=span), False)
    expected.add(MemoryCall("munmap", 0, unmapped=span), False)
    assert expected.ranges() == [span]
    expected.add(MemoryCall("munmap", 0, unmapped=span), True)
    assert expected.ranges() == [] and expected.doubtful() == [span]
