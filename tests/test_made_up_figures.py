"""Figures of findings and predictions from made-up arenas: nothing is claimed twice, and nothing that stays."""

from __future__ import annotations

import random
from itertools import product
from types import SimpleNamespace
from typing import Any

import pytest

from gdbheap.allocators.glibc import trim as trims
from gdbheap.allocators.glibc.arenas import HEADER, Glibc
from gdbheap.allocators.glibc.trim import ArenaTrim, Trim
from gdbheap.allocators.tcmalloc.allocator import TcmallocLibraries
from gdbheap.answers import fit, threads
from gdbheap.contents.python.arrays.ndarrays import Array, Dtype
from gdbheap.findings.free_chunks import rule as free_chunks
from gdbheap.findings.thread_tops import rule as thread_tops
from gdbheap.findings.thresholds import DEFAULT_THRESHOLD

MIB, PAGE = 1 << 20, 4096
# glibc's MINSIZE.
LEAST_CHUNK = 32


def arenas(rng: random.Random, count: int) -> list[ArenaTrim]:
    """Return what malloc_trim() would release from each arena: only the main one's top gives something."""
    found = []
    for index in range(count):
        top = rng.randrange(20) * MIB if index == 0 else 0
        chunks = rng.randrange(20) * MIB
        kept = rng.choice([0, DEFAULT_THRESHOLD, rng.randrange(1, 30 * MIB)])
        found.append(ArenaTrim(index, index, rng.randrange(9), 0, top + chunks, 0, top, kept))
    return found


def evidence(rows: list[ArenaTrim], threshold: int = 128 << 10) -> Any:
    """Return what rules read of a process with these arenas."""
    par = SimpleNamespace(hp_pagesize=0, trim_threshold=threshold, arena_max=0)
    malloc = SimpleNamespace(par=par, tcaches=[], walk=lambda: SimpleNamespace(arena_of=lambda _address: None))
    glibc = SimpleNamespace(malloc=malloc, holes=lambda _least: [])
    return SimpleNamespace(
        trim=Trim(sum(row.predicted or 0 for row in rows), None, rows, 0, 0, 0), glibc=glibc, unused_arenas=set(),
        worth=lambda size: size >= 4 * MIB, line=lambda *_words, **_more: [], measuring=list, trimming=list, tops=None,
        between_tops=None, heap=SimpleNamespace(target=SimpleNamespace(threads=[])),
    )  # fmt: skip


def test_free_chunks_are_without_the_top(rng: random.Random) -> None:
    """Check that the finding has the bytes that malloc_trim() releases apart from the tops, and that its parts add up
    to these bytes.
    """
    for _ in range(100):
        rows = arenas(rng, rng.randrange(1, 6))
        between = [(row.predicted or 0) - (row.top_predicted or 0) for row in rows]
        found = free_chunks.find(evidence(rows))
        assert bool(found) == (sum(between) >= 4 * MIB)
        for claim in found:
            figures: Any = claim.finding.figures
            assert claim.finding.bytes == sum(between) == figures.main + figures.threads
            assert (figures.main, figures.arenas) == (between[0], sum(size > 0 for size in between[1:]))
            assert figures.chunks == sum(row.chunks for row in rows)


def test_tops_of_threads(rng: random.Random, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check which bytes of the tops the finding has.

    With a high threshold: only the bytes above the default threshold, because the default would keep the others. With
    the default threshold: all bytes that the tops keep, because a single arena for all threads would free them.
    """
    monkeypatch.setattr(thread_tops, "origin_in", lambda *_about: "default")
    for _ in range(100):
        rows = arenas(rng, rng.randrange(2, 8))
        threshold = rng.choice([DEFAULT_THRESHOLD, 32 * MIB])
        kept = [row.top_kept or 0 for row in rows[1:]]
        beyond = sum(size - DEFAULT_THRESHOLD for size in kept if size > DEFAULT_THRESHOLD)
        is_reason = threshold > DEFAULT_THRESHOLD and beyond >= 4 * MIB
        found = thread_tops.find(evidence(rows, threshold))
        assert bool(found) == (is_reason or sum(kept) >= 4 * MIB)
        for claim in found:
            figures: Any = claim.finding.figures
            assert claim.finding.bytes == (beyond if is_reason else sum(kept))
            assert (figures.kept, figures.by_threshold, figures.arenas) == (claim.finding.bytes, is_reason, len(kept))
            allowed = DEFAULT_THRESHOLD if is_reason else 0
            assert figures.keeping == sum(size > allowed for size in kept)
            assert (figures.largest.bytes + allowed, rows[figures.largest.arena].top_kept) == (max(kept), max(kept))


def test_caches_of_tcmalloc(rng: random.Random) -> None:
    """Check that blocks in transfer caches count like those in threads' caches."""
    sizes = [SimpleNamespace(cached=rng.randrange(99), transfer=rng.randrange(1, 99)) for _ in range(5)]
    sums = [SimpleNamespace(transfer=rng.randrange(1 << 20)) for _ in range(5)]
    store = SimpleNamespace(sizes=lambda: sizes, sums=lambda: sums, caches=[3, None, 4], waiting=lambda: [(1, 2)])
    found = TcmallocLibraries.caching(SimpleNamespace(store=store))  # type: ignore[arg-type]
    assert (found.caches, found.ranges) == (7, [(1, 2)])
    assert found.blocks == sum(row.cached for row in sizes) + sum(row.transfer for row in sizes)
    assert found.shared == sum(row.transfer for row in sums)


def test_pages_that_leave_the_top(rng: random.Random, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check the released pages of a top against counting them one by one: more than the smallest chunk and the pad
    stay."""
    monkeypatch.setattr(trims, "_ends_at_break", lambda *_about: True)
    target: Any = SimpleNamespace(machine=SimpleNamespace(page=PAGE))
    for huge in (0, 64 << 10):
        glibc: Any = SimpleNamespace(par=SimpleNamespace(thp_pagesize=huge))
        unit = huge or PAGE
        exact = [LEAST_CHUNK + count * unit + shift for count in range(1, 5) for shift in (-16, 0, 16)]
        for size in (*exact, *(16 * rng.randrange(2, 40_000) for _ in range(200))):
            for pad in (0, 1, PAGE, rng.randrange(1 << 20)):
                end = 1000 * PAGE
                pages = max((count for count in range(size // unit + 1) if size - count * unit > LEAST_CHUNK + pad),
                            default=0)  # fmt: skip
                expected = (end - pages * unit, end) if pages else None
                assert trims._given_at_break(target, glibc, (end - size, end), pad) == expected, (size, pad, huge)


def test_growth_of_a_thread_arena(rng: random.Random) -> None:
    """Check that a heap grows by pages as long as its reserve has room, to the last byte, and that a new heap of at
    least 32 KiB is made else, if the request fits one."""
    for _ in range(500):
        reserve, end, top = 64 * MIB, rng.randrange(1, 64 * MIB // PAGE) * PAGE, 16 * rng.randrange(2, 300)
        room = reserve - end
        needs = [room + top - LEAST_CHUNK, room + top - LEAST_CHUNK + 16, rng.randrange(16, 70 * MIB) // 16 * 16]
        need = max(top, rng.choice(needs)) // 16 * 16
        state = SimpleNamespace(top=end - top, address=0x30)
        heap = SimpleNamespace(end=end, reserve=reserve)
        par = SimpleNamespace(hp_pagesize=0, top_pad=rng.choice([0, 128 << 10]))
        target = SimpleNamespace(machine=SimpleNamespace(page=PAGE))
        glibc: Any = SimpleNamespace(
            arenas=[None, state], par=par, target=target, heap_at=lambda _top, heap=heap: heap, heap_span=64 * MIB
        )
        missing = -(-(need + LEAST_CHUNK - top) // PAGE) * PAGE
        whole = need + LEAST_CHUNK + 0x30
        if missing <= room:
            expected: int | None = missing
        elif whole > 64 * MIB:
            expected = None
        else:
            expected = -(-min(max(whole + par.top_pad, 32 << 10), 64 * MIB) // PAGE) * PAGE
        assert fit._thread_arena_grows_by(glibc, 1, need, top) == expected, (need, top, end)


@pytest.mark.parametrize("unit", [None, HEADER])
def test_books_of_mmapped_chunks(unit: int | None, rng: random.Random) -> None:
    """Check by how much the found chunks differ from mp_'s count: since 2.43 mremap adds whole headers to it, and only
    these are left out."""
    for _ in range(200):
        found: Any = [SimpleNamespace(size=rng.randrange(1, 99) * PAGE) for _ in range(rng.randrange(1, 9))]
        more, excess = rng.randrange(-2, 3), rng.choice([0, 8, HEADER, 5 * HEADER, 5 * HEADER + 8, -HEADER, PAGE])
        size, layout = sum(row.size for row in found) + excess, {"mmapped_unit": unit}
        par = SimpleNamespace(mmapped_mem=size, layout=layout, n_mmaps=len(found) + more)
        own: Any = SimpleNamespace(par=par)
        is_drift = unit is not None and excess in (HEADER, 5 * HEADER, PAGE)
        assert Glibc._missing(own, found) == (abs(more), 0 if is_drift else abs(excess))


def touched(data: int, shape: tuple[int, ...], strides: tuple[int, ...], size: int) -> set[int]:
    """Return the addresses of all bytes of an array's items."""
    items = product(*(range(count) for count in shape))
    starts = {data + sum(place * stride for place, stride in zip(item, strides)) for item in items}
    return {start + byte for start in starts for byte in range(size)}


def test_bytes_of_an_array(rng: random.Random) -> None:
    """Check arrays of any strides, negative ones and those of 0 among them, against the set of their items' bytes: no
    array has more bytes than lie between its first and its last one, nor fewer than its items have."""
    for _ in range(300):
        size, dimensions = rng.choice([1, 2, 8]), rng.randrange(1, 4)
        shape = tuple(rng.randrange(1, 6) for _ in range(dimensions))
        strides = tuple(size * rng.choice([0, 0, 1, -1, 3, -7, 20]) for _ in range(dimensions))
        array = Array(1, Dtype("x", size, False), shape, strides, 1 << 20, 0)
        own = touched(1 << 20, shape, strides, size)
        assert array.span == (min(own), max(own) + 1)
        found = array.values().bytes
        assert len(own) <= found <= min(array.bytes, max(own) + 1 - min(own))
        row = rng.randrange(shape[0])
        if dimensions > 1:
            part = touched((1 << 20) + row * strides[0], shape[1:], strides[1:], size)
            assert len(part) <= array.values(row).bytes <= max(part) + 1 - min(part)


def test_one_item_for_all() -> None:
    """Check what np.broadcast_to() makes: of a billion items there is one."""
    array = Array(1, Dtype("float64", 8, False), (1 << 15, 1 << 15), (0, 0), 1 << 20, 0)
    assert (array.bytes, array.values().bytes) == (1 << 33, 8)


def test_objects_of_a_frame_count_once(rng: random.Random, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that an object that several variables of a frame hold counts once in the frame's size."""
    sizes = {address: rng.randrange(16, 1 << 20) for address in range(1, 9)}
    monkeypatch.setattr(
        threads, "_variables", lambda _heap, _references, addresses, _values: {
            address: threads.Variable(None, address, "bytes", sizes[address]) for address in addresses}
    )  # fmt: skip
    graph = SimpleNamespace(
        find=lambda _address: None, retained=lambda _numbers: [], retained_together=lambda sets: [0] * len(sets)
    )
    references: Any = SimpleNamespace(graph=graph)
    for _ in range(20):
        held = [rng.randrange(1, 9) for _ in range(rng.randrange(12))]
        named: Any = [SimpleNamespace(name=f"v{place}", value=address) for place, address in enumerate(held)]
        frame: Any = SimpleNamespace(function="f", file="f.py", line=1, locals=named)
        nothing: Any = None
        (found,) = threads._running(nothing, references, [frame], False)
        assert found.bytes == sum(sizes[address] for address in set(held))
        assert [(row.name, row.address) for row in found.locals] == [(one.name, one.value) for one in named]
