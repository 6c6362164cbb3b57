"""One overwritten word of a heap, as by a stray write: ``heap check`` reports the place, and no byte is lost."""

from __future__ import annotations

import random
import shutil
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from support.core_words import Memory
from support.library import blocks, heap_of
from support.programs import ask, c_program, running

from gdbheap.allocators.glibc.allocator import GlibcAllocator

pytestmark = pytest.mark.cases(20)

RECORD = struct.Struct("<4Q")
# The overwritten words: the state of their chunks, their offset, and the mask of changed bits.
KINDS = {
    "size of a used chunk": ("used", 8, 0xFFF0),
    "size of a free chunk": ("free", 8, 0xFFF0),
    "fd of a free chunk": ("free", 16, 0x7F_FFFF_FFF0),
    "bk of a free chunk": ("free", 24, 0x7F_FFFF_FFF0),
    "arena flag of a used chunk": ("used", 8, 4),
    "mmapped flag of a used chunk": ("used", 8, 2),
    "link of a chunk in a thread cache": ("tcache", 16, 0x7F_FFFF_FFF0),
}


@dataclass(frozen=True)
class Core:
    """A core and all its chunks, ascending as (header, size, state)."""

    path: Path
    rows: list[tuple[int, int, str]]

    def of(self, state: str) -> list[tuple[int, int]]:
        """Return (header, size) of the chunks in a state."""
        return [(header, size) for header, size, own in self.rows if own == state]

    @property
    def starts(self) -> set[int]:
        """Return the starts of all chunks, including the top chunk."""
        return {header for header, _, _ in self.rows} | {header + size for header, size, _ in self.rows}


@pytest.fixture(scope="module", params=["random", "former chunks"])
def core(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Core:
    """Return a core of a program with several arenas, whose live chunks hold random bytes or old data."""
    folder = tmp_path_factory.mktemp("damage")
    seed = random.getrandbits(30)
    with running(c_program("recorder", 3, seed, 40_000, 2000, 20_000, 0, folder / "table"), folder) as target:
        path = Path(target.as_form("gcore"))
    records = list(RECORD.iter_unpack((folder / "table").read_bytes()))
    with path.open("r+b") as file:
        memory = Memory(path)
        for pointer, usable, _, live in records:
            if live and usable < 100_000 and request.param == "random":
                file.seek(memory.place(pointer))
                file.write(random.randbytes(usable))
    assert ask("check", str(path))["damage"] == []
    rows = ask("chunks", str(path), "--state=used,free,fast,tcache")["rows"]
    return Core(path, sorted((row["address"] - 16, row["size"], row["state"]) for row in rows))


def other_word(old: int, mask: int, rng: random.Random, forbidden: Callable[[int], bool]) -> int:
    """Return a word that differs in some bits of the mask, and is not forbidden."""
    while True:
        new = old ^ ((rng.getrandbits(64) & mask) or mask)
        if new != old and not forbidden(new):
            return new


@pytest.mark.parametrize("round_", range(3))
@pytest.mark.parametrize("kind", KINDS)
def test_one_word(kind: str, round_: int, rng: random.Random, tmp_path: Path, core: Core) -> None:
    """Check that damage is reported in the chunk itself or in a neighbour, by memory or list, and no byte is lost."""
    state, offset, mask = KINDS[kind]
    header, size = rng.choice(core.of(state))
    memory = Memory(Path(shutil.copy(core.path, tmp_path / "damaged")))
    old = memory.word(header + offset)
    near = {header, header + 16, header + size}
    near |= {memory.word(header + 16), memory.word(header + 24)} if state == "free" else set()

    def leads_to_a_chunk(word: int) -> bool:
        return kind.startswith("size") and header + (word & ~7) in core.starts

    new = other_word(old, mask, rng, leads_to_a_chunk)
    memory.put(header + offset, new)
    if kind.startswith("size"):
        # The wrong size may lead beyond all existing chunks.
        near.add(header + (new & ~7))
    answer = ask("check", str(memory.path), status=1)
    places = [row["address"] for row in answer["damage"]]
    with heap_of(str(memory.path)) as heap:
        chunks = heap.allocator(GlibcAllocator).chunks
        for region in chunks.totals():
            assert sum(tally.bytes for tally in region.states) == region.end - region.start
        found = blocks(chunks, [row[0] + 16 for row in core.rows])
        lost = [row for row, chunk in zip(core.rows, found) if row != chunk]
    # A wrong size is noticed at the latest when the walk is back on existing chunks.
    back = max([header + size] + [start + length for start, length, _ in lost if start > header and "size" in kind])
    told = any(place in near or header <= place <= back for place in places)
    assert answer["ok"] is False
    assert told or state == "tcache", f"{header:#x} {old:#x} -> {new:#x}: {answer['damage']}"


FIELDS = ("top", "next", "mutex", "flags")


@pytest.mark.parametrize("field", FIELDS)
def test_an_arena_itself(field: str, rng: random.Random, tmp_path: Path, core: Core) -> None:
    """Check that a wrong word of an arena is reported there, and that all other arenas keep their figures."""
    memory = Memory(Path(shutil.copy(core.path, tmp_path / "damaged")))
    arenas = ask("arenas", str(core.path))["rows"]
    hit = rng.choice([row for row in arenas if row["index"] or field != "next"])
    with heap_of(str(core.path)) as heap:
        layout = heap.allocator(GlibcAllocator).malloc.arenas[0].layout
    # The mutex and the flags are the two halves of the first word.
    place = hit["address"] + {"mutex": 0, "flags": 0}.get(field, layout.get(field, 0))
    mask = {"mutex": 0x7FFFFFF8, "flags": 0x7FFFFFF8 << 32}.get(field, 0x7F_FFFF_FFF0)
    memory.put(place, other_word(memory.word(place), mask, rng, lambda word: word in core.starts))
    answer = ask("check", str(memory.path), status=1)
    assert place in [row["address"] for row in answer["damage"]], answer["damage"][:10]
    found = {row["address"]: row for row in ask("arenas", str(memory.path), status=1)["rows"]}
    for row in arenas:
        same = {key: value for key, value in row.items() if key != "index"}
        assert row is hit or same == {key: found[row["address"]][key] for key in same}
