"""``heap pins``: a program that frees the named blocks gives back the promised bytes, by the kernel's count."""

from __future__ import annotations

import json
import random
import re
import struct
from pathlib import Path
from typing import Any

import pytest
from support import kernel
from support.library import heap_of, warnings_of
from support.programs import FREE_THREADED, Running, ask, c_program, release_program, running

from gdbheap.allocators.glibc.allocator import GlibcAllocator
from gdbheap.allocators.mimalloc.allocator import MimallocAllocator
from gdbheap.answers.accounting.partition import partition
from gdbheap.answers.accounting.paths import MAX_PATHS
from gdbheap.answers.pins import pins, with_paths
from gdbheap.errors import Unsupported
from gdbheap.findings.finding import Evidence
from gdbheap.findings.pinned_pages.rule import at_most
from gdbheap.heap import Heap

pytestmark = pytest.mark.cases(3)

IN_THREAD, BLOCKED, FOREIGN = 1, 2, 4
# Memory that freeing and malloc_trim() touch themselves: a stack, an arena for the freeing thread, merged chunks.
OWN = 64 * 1024
ROWS = 500
PYTHON = re.compile(r"sys\.modules\[|[\w.()']+\(")
PAGE = 4096
# The size of a slice of mimalloc's.
SLICE = 64 * 1024
WITHOUT_CACHE = {"GLIBC_TUNABLES": "glibc.malloc.tcache_count=0"}


def told(target: Running, pointers: list[int]) -> int:
    """Let the program free these and trim; return by how much RssAnon shrank."""
    path = target.directory / "told"
    path.write_bytes(struct.pack(f"<{len(pointers)}Q", *pointers))
    before = kernel.anonymous(target.pid)
    target.go_on(str(path))
    return before - kernel.anonymous(target.pid)


def owned(answer: dict[str, Any], held: set[int]) -> list[dict[str, Any]]:
    """Return the pins with blocks of the program only."""
    return [
        pin
        for pin in answer["rows"]
        if len(pin["members"]) == pin["blocks"] and {member["address"] for member in pin["members"]} <= held
    ]


def check(answer: dict[str, Any]) -> None:
    """Check that no block is in two groups, that the sums are those of the groups, and that each keeps twice its own
    bytes."""
    seen: set[int] = set()
    for pin in answer["rows"]:
        addresses = {member["address"] for member in pin["members"]}
        assert pin["address"] in addresses and not addresses & seen, pin
        seen |= addresses
        if len(pin["members"]) == pin["blocks"]:
            assert sum(member["size"] for member in pin["members"]) == pin["size"]
        assert pin["would_free"] >= 2 * pin["size"]
    for row in answer["sums"]:
        of_row = [pin for pin in answer["rows"] if pin["allocator"] == row["allocator"]]
        sums = [len(of_row), *(sum(pin[key] for pin in of_row) for key in ("blocks", "size", "would_free"))]
        assert sums == [row[key] for key in ("groups", "blocks", "bytes", "would_free")]
    kept = [pin["would_free"] - pin["size"] for pin in answer["rows"]]
    assert kept == sorted(kept, reverse=True)


@pytest.mark.parametrize("mode", [0, IN_THREAD, BLOCKED, FOREIGN])
@pytest.mark.parametrize("threads", [1, 4])
def test_glibc(threads: int, mode: int, rng: random.Random, tmp_path: Path) -> None:
    """Check the main arena and threads' arenas: the pins that keep the most memory are freed together."""
    table = tmp_path / "table"
    kept = rng.choice([8, 20, 60])
    command = c_program("pins", rng.getrandbits(30), threads, 60_000 // threads, kept, 30_000, mode, table)
    with running(command, tmp_path, None if mode == IN_THREAD else WITHOUT_CACHE) as target:
        answer = ask("pins", str(target.pid))
        held = set(struct.unpack(f"<{table.stat().st_size // 8}Q", table.read_bytes()))
        told(target, [])
        assert ask("trim", str(target.pid))["predicted"] == 0
        top = owned(answer, held)[:ROWS]
        actual = told(target, [member["address"] for pin in top for member in pin["members"]])
    check(answer)
    promised = sum(pin["would_free"] for pin in top)
    assert promised > 10 * OWN, "nothing to speak of is pinned"
    assert abs(actual - promised) <= max(OWN, promised // 20), (promised, actual, kept)


@pytest.mark.parametrize("release", ["3.9", "3.11", "3.13"])
def test_pymalloc(release: str, rng: random.Random, tmp_path: Path) -> None:
    """Check arenas that few objects keep: dropping those frees the arenas' pages."""
    truth = tmp_path / "truth"
    command = release_program(release, "pinned_arenas", rng.getrandbits(30), rng.choice([300, 1000, 4000]), truth)
    with running(command, tmp_path) as target:
        answer = ask("pins", str(target.pid), "--allocator=pymalloc")
        head = objects_offset(answer, json.loads(truth.read_text()))
        top = owned(answer, {address - head for address in json.loads(truth.read_text())})
        path = target.directory / "told"
        path.write_text(json.dumps([member["address"] + head for pin in top for member in pin["members"]]))
        before = kernel.anonymous(target.pid)
        target.go_on(str(path))
        actual = before - kernel.anonymous(target.pid)
    check(answer)
    assert {pin["allocator"] for pin in answer["rows"]} == {"pymalloc"}
    kinds = {kind["what"]: kind for kind in answer["by_kind"]}
    assert max(kinds, key=lambda what: kinds[what]["would_free"]) == "__main__.Left"
    promised = sum(pin["would_free"] for pin in top)
    assert promised > 10 * OWN, "nothing to speak of is pinned"
    assert abs(actual - promised) <= promised // 20, (promised, actual)


@pytest.mark.parametrize("release", ["3.13", "3.14", "3.15", *FREE_THREADED])
def test_mimalloc(release: str, rng: random.Random, tmp_path: Path) -> None:
    """Check that pages of mimalloc that few objects keep are empty without them, as promised.

    Builds with the interpreter's lock give the pages up then, and return them once another page of the segment goes.
    """
    truth, threaded = tmp_path / "truth", release in FREE_THREADED
    command = release_program(release, "pinned_arenas", rng.getrandbits(30), rng.choice([50, 200, 1000]), truth, 20)
    with running(command, tmp_path, {} if threaded else {"PYTHONMALLOC": "mimalloc"}) as target:
        answer = ask("pins", str(target.pid), "--allocator=mimalloc")
        head = objects_offset(answer, json.loads(truth.read_text()))
        top = owned(answer, {address - head for address in json.loads(truth.read_text())})
        # Such small blocks are in pages of one slice.
        slices = [pin["address"] // SLICE * SLICE for pin in top]
        assert [pin["would_free"] for pin in top] == [kernel.resident_inside(target.pid, at, SLICE) for at in slices]
        path = target.directory / "told"
        path.write_text(json.dumps([member["address"] + head for pin in top for member in pin["members"]]))
        target.go_on(str(path))
        with heap_of(str(target.pid)) as heap:
            pages = heap.allocator(MimallocAllocator).mimalloc.blocks
            used = [address for address in slices if pages.used_in_page(address)]
            blocks = [pages.find(heap.target.space, at) for at in slices]
            states = ["gone" if block is None else block.state for block in blocks]
        target.go_on("spare")
        left = sum(kernel.resident_inside(target.pid, at, SLICE) for at in slices if mapped(target.pid, at))
    check(answer)
    promised = sum(pin["would_free"] for pin in top)
    assert promised > 10 * OWN, "nothing to speak of is pinned"
    assert max(answer["by_kind"], key=lambda kind: kind["would_free"])["what"] == "__main__.Left"
    assert not used
    if not threaded:
        # mimalloc keeps the last page of a size for a while.
        assert sum(state not in ("free span", "gone") for state in states) <= 2
        assert left <= max(promised // 10, 4 * SLICE), (promised, left)


def mapped(pid: int, address: int) -> bool:
    """Return whether the address is mapped."""
    return any(mapping.start <= address < mapping.end for mapping in kernel.maps(pid))


def objects_offset(answer: dict[str, Any], objects: list[int]) -> int:
    """Return the offset of an object in its block: the one with which most objects start in a member."""
    members = {member["address"] for pin in answer["rows"] for member in pin["members"]}
    return max(range(0, 48, 8), key=lambda head: sum(address - head in members for address in objects))


@pytest.mark.parametrize("mode", [0, BLOCKED, FOREIGN])
def test_never_more_than_is_free(mode: int, rng: random.Random, tmp_path: Path) -> None:
    """Check the upper bound for the bytes that freeing pins gains, by which ``heap`` decides whether to search for
    pins: the bound always holds, and is low if almost nothing is free.
    """
    for kept in (1, 2, 4, 30):
        arguments = (rng.getrandbits(30), rng.choice([1, 3]), 10_000, kept, rng.choice([500, 9000, 60_000]), mode)
        with running(c_program("pins", *arguments, tmp_path / "table"), tmp_path) as target:
            with heap_of(str(target.pid)) as heap:
                evidence = Evidence(heap, *partition(heap))
                glibc = heap.allocator(GlibcAllocator)
                freed = glibc.pins(evidence.kept, 1, 0).totals.freed
                assert freed <= at_most(evidence, glibc), arguments
                assert at_most(evidence, glibc) < 1 << 20 or kept > 1


def released(chunks: list[dict[str, Any]], gone: set[int], pid: int) -> set[int]:
    """Return the resident pages that malloc_trim() would release of these neighbours if some were gone: the whole
    pages of each run of free chunks, less the first 48 bytes. A chunk in the thread's cache is not free."""
    found: set[int] = set()
    runs: list[list[int]] = []
    for chunk in chunks:
        start, end = chunk["address"] - 16, chunk["address"] - 16 + chunk["size"]
        if chunk["state"] in ("free", "fast") or chunk["address"] in gone:
            if runs and runs[-1][1] == start:
                runs[-1][1] = end
            else:
                runs.append([start, end])
    for start, end in runs:
        found |= set(range(-(-(start + 48) // PAGE), end // PAGE))
    return {page for page in found if kernel.resident_inside(pid, page * PAGE, PAGE)}


@pytest.mark.parametrize("kept", [1, 2, 3, 10])
def test_against_a_plain_model(kept: int, rng: random.Random, tmp_path: Path) -> None:
    """Check chunk by chunk that freeing a group gains the pages of the free runs around it, and only if all of it is
    freed; a heap without free chunks has no group."""
    command = c_program("pins", rng.getrandbits(30), 1, 20_000, kept, 9000, 0, tmp_path / "table")
    with running(command, tmp_path, WITHOUT_CACHE) as target:
        answer = ask("pins", str(target.pid), "--allocator=glibc")
        chunks = sorted(ask("chunks", str(target.pid))["rows"], key=lambda chunk: chunk["address"])
        places = {chunk["address"]: place for place, chunk in enumerate(chunks)}
        pins = answer["rows"]
        for pin in rng.sample(pins, min(60, len(pins))):
            check_group(pin, chunks, places, target.pid, rng)
    check(answer)
    assert len(pins) < 10 if kept == 1 else len(pins) > 60


def check_group(
    pin: dict[str, Any], chunks: list[dict[str, Any]], places: dict[int, int], pid: int, rng: random.Random
) -> None:
    """Compare one group with the model, which examines the chunks around it."""
    members = [member["address"] for member in pin["members"]]
    window = chunks[max(0, places[members[0]] - 40) : places[members[-1]] + 40]
    if any(chunk["state"] == "top" for chunk in window):
        return
    before = released(window, set(), pid)
    assert PAGE * len(released(window, set(members), pid) - before) == pin["would_free"], pin
    without_one = set(members) - {rng.choice(members)}
    assert PAGE * len(released(window, without_one, pid) - before) < pin["would_free"], pin


def named(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the blocks of objects whose path is Python, without buffers."""
    return [row for row in rows if PYTHON.match(row["path"] or "") and " at 0x" not in row["what"]]


def in_their_blocks(rows: list[dict[str, Any]], target: Running) -> None:
    """Let the program evaluate the paths: each value must be in the block that it leads to."""
    asked = target.directory / "asked"
    asked.write_text(json.dumps([row["path"] for row in rows]))
    target.go_on(str(asked))
    for row, place in zip(rows, json.loads(Path(f"{asked}.answer").read_text())):
        assert row["address"] <= place < row["address"] + row["size"], (row, hex(place))


@pytest.mark.parametrize("release", ["3.9", "3.11", "3.13"])
def test_paths(release: str, rng: random.Random, tmp_path: Path) -> None:
    """Check the holder of each pin and the neighbours of each hole against the program's own report."""
    with running(release_program(release, "held_apart", rng.getrandbits(30)), tmp_path) as target:
        answer = ask("pins", str(target.pid), "--path")
        cut = ask("pins", str(target.pid), "--path", "--sort=size", "--top=7")
        holes = ask("holes", str(target.pid), "--path", "--min=16K", "--top=150")
        blocks = named([member for pin in answer["rows"] for member in pin["members"]])
        beside = named([block for hole in holes["rows"] for block in (hole["before"], hole["after"]) if block])
        in_their_blocks(blocks + beside, target)
    assert all(warning.startswith("paths are shown for the first 2,000 of ") for warning in answer["warnings"])
    kept = [[row["path"] for row in rows if "__main__'].cache" in row["path"]] for rows in (blocks, beside)]
    assert len(set(kept[0])) > 100 and len(set(kept[1])) > 100
    kinds = {kind["what"]: kind["path"] for kind in answer["by_kind"]}
    assert kinds["__main__.Record"] == "sys.modules['__main__'].cache.log[…]"
    alone = [pin for pin in answer["rows"] if pin["blocks"] == 1]
    assert alone and all(pin["path"] == pin["members"][0]["path"] for pin in alone)
    # The listed pins have their paths, whatever the order is.
    largest = sorted(answer["rows"], key=lambda pin: -pin["size"])[:7]
    assert [pin["size"] for pin in cut["rows"]] == [pin["size"] for pin in largest]
    assert all(pin["path"] for pin in cut["rows"]) and not cut["warnings"]


def test_paths_without_python(rng: random.Random, tmp_path: Path) -> None:
    """Check that each path begins at the mapping in which the program keeps the addresses of its blocks."""
    command = c_program("pins", rng.getrandbits(30), 1, 20_000, 20, 9000, 0, tmp_path / "table")
    with running(command, tmp_path) as target:
        held = set(struct.unpack(f"<{(tmp_path / 'table').stat().st_size // 8}Q", (tmp_path / "table").read_bytes()))
        answer = ask("pins", str(target.pid), "--path", "--min=4K")
        blocks = [member for pin in answer["rows"] for member in pin["members"] if member["address"] in held]
        ends = {region.start: region.end for region in kernel.maps(target.pid)}
        for begin in {member["path"].removeprefix("[anonymous] at ") for member in blocks if member["path"]}:
            start = int(begin, 16)
            words = kernel.read(target.pid, start, ends[start] - start)
            pointers = set(struct.unpack(f"<{len(words) // 8}Q", words))
            there = [member["address"] for member in blocks if member["path"] == f"[anonymous] at {begin}"]
            assert set(there) <= pointers
    named_blocks = sum(member["path"] is not None for member in blocks)
    assert named_blocks == len(blocks) if len(blocks) <= MAX_PATHS else named_blocks > 100


def test_no_references(rng: random.Random, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that the answer is the same without paths, with one warning, if references cannot be read."""
    command = c_program("pins", rng.getrandbits(30), 1, 20_000, 20, 9000, 0, tmp_path / "table")

    def refuse(_heap: Heap) -> None:
        raise Unsupported("not here")

    monkeypatch.setattr(Heap, "references", property(refuse))
    with running(command, tmp_path) as target, heap_of(str(target.pid)) as heap:
        plain = pins(heap, 4096)
        assert with_paths(heap, plain, plain.rows) == plain and plain.rows
        assert warnings_of(heap)[-1:] == ["no paths are shown: not here"]
