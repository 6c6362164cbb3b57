"""``heap holes --fit`` against malloc itself: the program's next malloc() has the predicted result."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from support.programs import FORMS, GCORE, PROCESS, ask, c_program, running

pytestmark = pytest.mark.cases(10)

MAIN, THREAD = 0, 1
PLAIN, FAST, BLOCKED = 0, 1, 2
SMALL_CHUNK = 96
MMAP_THRESHOLD = 32 << 20
NO_MMAP = "glibc.malloc.mmap_max=0"
# For a request: 8 bytes of the next chunk can be used, 16 is the grain; malloc leaves 32 bytes at the top.
HEADER, GRAIN, LEFT_AT_TOP = 8, 16, 32


@dataclass(frozen=True)
class Built:
    """The memory of fit.c: free chunks by address, the same merged with the small free one after them, the size of
    the top."""

    alone: dict[int, int]
    merged: dict[int, int]
    top: int

    @property
    def largest(self) -> int:
        """Return the size of the largest single chunk."""
        return max(self.alone.values())


@dataclass(frozen=True)
class Result:
    """The effect of malloc(): the pointer, its usable size, and the growth of arenas, break and mmapped bytes."""

    pointer: int
    usable: int
    arenas: int
    brk: int
    mapped: int


def built(path: Path, top: int) -> Built:
    """Read fit.c's table."""
    blocks = list(struct.iter_unpack("<3Q", path.read_bytes()))
    free = {pointer: usable + 8 for pointer, usable, held in blocks if not held}
    alone = {pointer: size for pointer, size in free.items() if size != SMALL_CHUNK}
    assert len(set(alone.values())) == len(alone)
    merged = {pointer: size + (free.get(pointer + size, 0)) for pointer, size in alone.items()}
    return Built(alone, merged, top)


def request_for(chunk: int) -> int:
    """Return the largest request that fits a chunk of this size."""
    return chunk - HEADER


def some(found: Built, rng: random.Random) -> int:
    """Return a request that some chunk fits."""
    return rng.randrange(2048, found.largest - HEADER)


def exactly(found: Built, rng: random.Random) -> int:
    """Return the largest chunk, to the byte."""
    return request_for(found.largest)


def one_byte_more(found: Built, rng: random.Random) -> int:
    """Return one byte more, for which the largest chunk is 16 bytes too short."""
    return request_for(found.largest) + 1


def merged(found: Built, rng: random.Random) -> int:
    """Return the largest request after merging with a fast chunk."""
    return request_for(max(found.merged.values()))


def off_the_top(found: Built, rng: random.Random) -> int:
    """Return the top chunk except the rest that malloc leaves, with the fast chunk below it."""
    return request_for(found.top + SMALL_CHUNK - LEFT_AT_TOP)


def more_than_top(found: Built, rng: random.Random) -> int:
    """Return a byte more than the top chunk or any other can give."""
    return max(request_for(found.top - LEFT_AT_TOP), request_for(found.largest)) + 1


def a_few_mib(found: Built, rng: random.Random) -> int:
    """Return more than there is."""
    return rng.randrange(5 << 20, 15 << 20)


def below_threshold(found: Built, rng: random.Random) -> int:
    """Return the largest request that malloc does not map."""
    return request_for(MMAP_THRESHOLD - GRAIN)


def at_threshold(found: Built, rng: random.Random) -> int:
    """Return the smallest request that malloc maps."""
    return request_for(MMAP_THRESHOLD)


def beyond_a_heap(found: Built, rng: random.Random) -> int:
    """Return more than a thread's heap can have."""
    return rng.randrange(65 << 20, 80 << 20)


def small(found: Built, rng: random.Random) -> int:
    """Return the size of a chunk in the tcache."""
    return rng.randrange(SMALL_CHUNK - HEADER - GRAIN + 1, SMALL_CHUNK - HEADER + 1)


Choose = Callable[[Built, random.Random], int]


@dataclass(frozen=True)
class Case:
    """A program, a request, and the expected result: cached, best, top, grows or mapped."""

    choose: Choose
    outcome: str
    where: int = MAIN
    shape: int = PLAIN
    largest: int = 400_000
    tunables: str = ""

    @property
    def leaves_remainders(self) -> bool:
        """Return whether the arena has several extents or heaps."""
        return self.shape == BLOCKED or (self.where == THREAD and self.largest > 1 << 20)


CASES = {
    "some": Case(some, "best"),
    "some, thread": Case(some, "best", THREAD),
    "some, fast bins": Case(some, "best", MAIN, FAST),
    "some, fast bins, thread": Case(some, "best", THREAD, FAST),
    "some, blocked break": Case(some, "best", MAIN, BLOCKED),
    "exactly": Case(exactly, "best"),
    "exactly, thread": Case(exactly, "best", THREAD),
    "one byte more": Case(one_byte_more, "grows", largest=1_500_000),
    "one byte more, thread": Case(one_byte_more, "grows", THREAD, largest=1_500_000),
    "merged": Case(merged, "best", MAIN, FAST),
    "merged, thread": Case(merged, "best", THREAD, FAST),
    "top": Case(off_the_top, "top", MAIN, FAST, 3000),
    "top, thread": Case(off_the_top, "top", THREAD, FAST, 3000),
    "more than top": Case(more_than_top, "grows", largest=3000),
    "more than top, thread": Case(more_than_top, "grows", THREAD, largest=3000),
    "a few MiB": Case(a_few_mib, "grows"),
    "a few MiB, thread": Case(a_few_mib, "grows", THREAD),
    "a few MiB, blocked break": Case(a_few_mib, "grows", MAIN, BLOCKED),
    "more than top, blocked break": Case(more_than_top, "grows", MAIN, BLOCKED, 3000),
    "below the threshold": Case(below_threshold, "grows"),
    "a further heap": Case(below_threshold, "grows", THREAD, largest=1_400_000),
    "at the threshold": Case(at_threshold, "mapped"),
    "at the threshold, thread": Case(at_threshold, "mapped", THREAD),
    "beyond a heap": Case(beyond_a_heap, "mapped", THREAD, tunables=NO_MMAP),
    "at the threshold, no mmap": Case(at_threshold, "grows", tunables=NO_MMAP),
    "small": Case(small, "cached"),
    "small, thread": Case(small, "cached", THREAD),
    "huge pages": Case(a_few_mib, "grows", tunables="glibc.malloc.hugetlb=1"),
}


@pytest.mark.parametrize("name", CASES)
def test_prediction(name: str, rng: random.Random, tmp_path: Path) -> None:
    """Check that malloc() in a process does what was predicted."""
    check(CASES[name], PROCESS, rng, tmp_path)


@pytest.mark.parametrize("name", ["some, fast bins", "one byte more", "a further heap", "small, thread"])
def test_prediction_from_a_core(name: str, rng: random.Random, tmp_path: Path) -> None:
    """Check the prediction from a core that gdb wrote while the program waited."""
    check(CASES[name], GCORE, rng, tmp_path)


def check(case: Case, form: str, rng: random.Random, directory: Path) -> None:
    """Ask for a prediction, let the program call malloc, and compare."""
    table, result = directory / "table", directory / "result"
    arguments = (rng.randrange(1 << 30), case.where, case.shape, case.largest, table, result)
    program = c_program("fit", *arguments)
    with running(program, directory, {"GLIBC_TUNABLES": case.tunables}) as target:
        name = target.as_form(form)
        found = built(table, ask("arenas", name, "--sort=index")["rows"][case.where]["top"])
        request = case.choose(found, rng)
        answer = ask("holes", name, "--top=1", f"--fit={request}")["fit"]
        target.go_on(str(request))
    ours = next(arena for arena in answer["by_arena"] if arena["index"] == case.where)
    done = Result(*struct.unpack("<5Q", result.read_bytes()))
    assert outcome(answer, ours) == case.outcome, (request, found, answer)
    check_outcome(answer, ours, done, case)
    check_figures(answer, ours, found, request, case)


def outcome(answer: dict[str, Any], ours: dict[str, Any]) -> str:
    """Return the predicted result as one word."""
    if answer["cached_pieces"]:
        return "cached"
    if ours["best_piece"] is not None:
        return "best"
    return "top" if ours["uses_top"] else "mapped" if ours["mmapped"] else "grows"


def check_outcome(answer: dict[str, Any], ours: dict[str, Any], done: Result, case: Case) -> None:
    """Compare with the result of malloc."""
    kernel = (done.arenas, done.mapped > 0)
    if case.outcome == "cached":
        assert kernel == (0, False) and done.pointer in [piece["address"] for piece in answer["cached_pieces"]]
    elif case.outcome == "best":
        assert kernel == (0, False) and done.pointer == ours["best_piece"]["address"]
    elif case.outcome == "top":
        assert kernel == (0, False)
    elif case.outcome == "mapped":
        assert kernel == (0, True) and ours["grows_by"] is None
    else:
        assert kernel == (ours["grows_by"], False)
        assert done.brk == (ours["grows_by"] if case.where == MAIN and case.shape != BLOCKED else 0)


def check_figures(answer: dict[str, Any], ours: dict[str, Any], found: Built, request: int, case: Case) -> None:
    """Check the chunk's size, the sum of all arenas, and the missing bytes, by the program's own table."""
    chunk = max(32, (request + 8 + 15) // 16 * 16)
    assert (answer["request"], answer["chunk"]) == (request, chunk)
    assert answer["mmap_threshold"] == MMAP_THRESHOLD
    assert answer["mmapped"] == (not answer["fits"] and all(arena["mmapped"] for arena in answer["by_arena"]))
    served = (arena["best_piece"] or arena["uses_top"] for arena in answer["by_arena"])
    assert answer["fits"] == any([answer["cached_pieces"], *served])
    if case.outcome in ("top", "grows", "mapped"):
        check_nearest(answer, ours, found, chunk, case)


def check_nearest(answer: dict[str, Any], ours: dict[str, Any], found: Built, chunk: int, case: Case) -> None:
    """Check the largest chunks of the arena, and the bytes that they lack.

    The remainders of full heaps and extents are not in the table: alone, or merged with a chunk that is.
    """
    sizes = found.merged if case.shape == FAST else found.alone
    near = {piece["address"]: piece["size"] for piece in answer["nearest"] if piece["arena"] == case.where}
    assert near and all(size <= min(near.values()) for address, size in sizes.items() if address not in near)
    assert all(near[address] >= size for address, size in sizes.items() if address in near)
    assert case.leaves_remainders or near.items() <= sizes.items()
    assert list(near.values()) == sorted(near.values(), reverse=True)
    assert ours["short_by"] == chunk - max(near.values()) > 0
    assert all(piece["short_by"] == chunk - piece["size"] for piece in answer["nearest"])


@pytest.mark.parametrize("form", FORMS)
def test_a_hole_may_be_several_chunks(form: str, rng: random.Random, tmp_path: Path) -> None:
    """Check seven adjacent chunks in the tcache: they are a hole, but fit no request of their common size."""
    arguments = (rng.randrange(1 << 30), MAIN, PLAIN, 400_000, tmp_path / "table", tmp_path / "result")
    with running(c_program("fit", *arguments), tmp_path) as target:
        name = target.as_form(form)
        whole = ask("holes", name, "--min=512")
        answer = ask("holes", name, f"--fit={request_for(7 * SMALL_CHUNK)}")["fit"]
    first = next(struct.iter_unpack("<3Q", (tmp_path / "table").read_bytes()))[0]
    assert whole["fit"] is None
    assert [hole["size"] for hole in whole["rows"] if hole["address"] == first] == [7 * SMALL_CHUNK]
    assert answer["chunk"] == 7 * SMALL_CHUNK and answer["cached_pieces"] == []
    assert answer["by_arena"][0]["best_piece"] == {
        key: min(whole["rows"], key=lambda hole: (hole["size"] <= 7 * SMALL_CHUNK, hole["size"]))[key]
        for key in ("address", "size")
    }


@pytest.mark.parametrize(("request_size", "chunk"), [(0, 32), (24, 32), (25, 48), (40, 48), (8_880_819, 8_880_832)])
def test_sizes_of_chunks(request_size: int, chunk: int, rng: random.Random, tmp_path: Path) -> None:
    """Check request2size; a size that malloc refuses is a wrong usage."""
    arguments = (rng.randrange(1 << 30), MAIN, PLAIN, 4000, tmp_path / "table", tmp_path / "result")
    with running(c_program("fit", *arguments), tmp_path) as target:
        assert ask("holes", str(target.pid), f"--fit={request_size}")["fit"]["chunk"] == chunk
