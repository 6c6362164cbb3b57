"""Structures of a target that lead to the same place again and again: the work for each, and for all, is bounded."""

from __future__ import annotations

import random
import struct
from collections import Counter
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from support.work import peak

from gdbheap.answers import behind_objects
from gdbheap.contents.openssl import connections
from gdbheap.contents.python.arrays.arrow import Arrow
from gdbheap.contents.python.arrays.columns import ColumnValues, NotBelieved
from gdbheap.contents.python.arrays.dataframes import EXTENSION, NDARRAY_KIND, DataFrames
from gdbheap.contents.python.running import handled_exceptions, registered, threads
from gdbheap.contents.python.running import tracemalloc_tables as traces
from gdbheap.contents.python.running.coroutines import Coroutines
from gdbheap.errors import Fault
from gdbheap.machines import image
from gdbheap.machines.machine import X86_64
from gdbheap.targets.cores import agreement

WORD = X86_64.word


class _Release(dict[str, Any]):
    """Made-up offsets of a release."""

    def at(self, name: object) -> int:
        """Return a made-up offset."""
        return name if isinstance(name, int) else 0


def frames_of(parts: dict[int, list[int]], asked: Counter[int]) -> DataFrames:
    """Return a reader of arrays that consist of others; an array without parts is numpy's."""

    def kinds_of(address: int) -> frozenset[str]:
        asked[address] += 1
        return frozenset([EXTENSION] if parts.get(address) else [NDARRAY_KIND])

    fields: Any = SimpleNamespace(
        kinds_of=kinds_of,
        attributes=lambda address: dict(zip(("_left", "_right"), parts[address])),
        held=lambda _address, *_kinds: [],
    )
    arrays: Any = SimpleNamespace(read=lambda _address: SimpleNamespace(values=lambda: ColumnValues("int64", 1, 8)))
    return DataFrames(fields, arrays, SimpleNamespace())  # type: ignore[arg-type]


def test_arrays_that_have_the_same_parts() -> None:
    """Check that two arrays at each level, each made of both of the next level, are read once each."""
    asked: Counter[int] = Counter()
    parts = {number: [number - number % 2 + 2, number - number % 2 + 3] for number in range(26)}
    assert frames_of(parts, asked).values(0).length == 1
    assert sum(asked.values()) < 10 * len(parts)


@pytest.mark.parametrize("step", [0, 1])
def test_arrays_without_an_end(step: int) -> None:
    """Check that an array that contains itself, and parts deeper than pandas has, are rejected."""
    parts = {number: [number + step] for number in range(5000)}
    with pytest.raises(NotBelieved):
        frames_of(parts, Counter()).values(0)


def test_a_type_that_is_both_of_a_dictionary() -> None:
    """Check dictionaries whose indices and values are one dictionary."""
    asked: Counter[int] = Counter()

    def name(address: int) -> str:
        asked[address] += 1
        return "arrow::DictionaryType" if address >> 12 < 14 else "arrow::Int8Type"

    memory = SimpleNamespace(
        machine=SimpleNamespace(word=WORD),
        word=lambda address: ((address >> 12) + 1) << 12,
        read=lambda _address, size: bytes(size),
    )
    fields: Any = SimpleNamespace(memory=memory)
    classes: Any = SimpleNamespace(name=name)
    arrow = Arrow(fields, classes, lambda _start, _size: True)
    text = arrow._type_text(1 << 12)
    assert text.startswith("dictionary<") and sum(asked.values()) < 200


def test_names_of_files_that_overlap(monkeypatch: pytest.MonkeyPatch, rng: random.Random) -> None:
    """Check tracebacks whose file names are each a long text of their own: all together have one budget."""
    monkeypatch.setattr(traces, "LOOKED_AT", 1 << 14)
    read: Counter[str] = Counter()

    def cstring(_address: int, size: int) -> bytes:
        read["characters"] += size
        return b"x" * size

    one: Any = object.__new__(traces.Traces)
    one._memory = SimpleNamespace(
        machine=X86_64, read=lambda _address, _size: b"\1\0\0\0", word=int, u32=lambda _address: 1, cstring=cstring
    )
    one._release, one._lines, one._files, one._left = _Release(traceback_text=1), {}, {}, traces.LOOKED_AT
    count = rng.randrange(500, 1000)
    found = [one.line_of(8 * number) for number in range(count)]
    assert found[0] is not None and found[-1] is None
    assert read["characters"] <= 4 * traces.LOOKED_AT + traces.MAX_PATH


def test_an_exception_item_that_leads_to_itself(rng: random.Random) -> None:
    """Check threads whose exception items are one item that precedes itself."""
    asked: Counter[int] = Counter()
    item, count = 1 << 20, rng.randrange(100, 200)

    def word(address: int) -> int:
        asked[address] += 1
        return 0 if address == item + 8 else item

    space: Any = SimpleNamespace(word=word)
    release: Any = _Release(ts_exc_info=0, exc_item_value=8, exc_item_previous=16)
    states = [threads.ThreadState(4096 * number, 0, None, []) for number in range(count)]
    assert list(handled_exceptions.handled_exceptions(space, release, states)) == []
    assert sum(asked.values()) <= count + 2


def test_callbacks_of_all_interpreters(monkeypatch: pytest.MonkeyPatch, rng: random.Random) -> None:
    """Check interpreters that each claim four billion callbacks."""
    monkeypatch.setattr(registered, "ALL_CALLBACKS", 100, raising=False)
    space: Any = SimpleNamespace(word=lambda _address: (1 << 40) - 1, machine=X86_64)
    release: Any = _Release(interp_codecs=0, interp_atexit=8)
    found = registered.registered_with(space, release, range(rng.randrange(10, 20)))
    assert sum(len(held) for name, held in found if name.startswith("functions of atexit")) == 100


def test_dicts_in_the_fields_of_interpreters(monkeypatch: pytest.MonkeyPatch, rng: random.Random) -> None:
    """Check interpreters in which each word leads to another dict with many keys, none with the modules."""
    monkeypatch.setattr(threads, "ALL_KEYS", 1000, raising=False)
    monkeypatch.setattr(threads, "MAX_MODULES", 128)
    monkeypatch.setattr(threads, "read_name", lambda *_arguments: "x")
    monkeypatch.setattr(threads.ThreadStates, "_is_dict", lambda _threads, _address: True)
    monkeypatch.setattr(threads.ThreadStates, "_find_interpreters", lambda _threads, _module: [])
    read: Counter[str] = Counter()

    def dict_items(_space: object, _release: object, address: int, allowance: Any = None) -> Any:
        for _ in range(100):
            if allowance is not None:
                allowance.take(address, 64)
            read["keys"] += 64
            yield from [(1, 1)] * 64

    def read_available(address: int, size: int) -> bytes:
        return struct.pack("<100Q", *range(address << 20, (address << 20) + 800, 8))

    monkeypatch.setattr(threads, "dict_items", dict_items)
    space = SimpleNamespace(machine=X86_64, read_available=read_available)
    target: Any = SimpleNamespace(space=space, threads=[], machine=X86_64)
    one: Any = threads.ThreadStates(target, SimpleNamespace(), _Release())  # type: ignore[arg-type]
    assert {one._modules_place(number) for number in range(1, rng.randrange(10, 20))} == {None}
    assert 0 < read["keys"] <= 1000


def test_a_long_list_behind_an_object() -> None:
    """Check that samples of the blocks of a list do not read the whole list for each sample."""
    read: Counter[str] = Counter()
    blocks, seed, kind = 40_000, 0, 77

    def chain(number: int, last: int | None = None) -> list[int]:
        found = list(range(number + 1) if last is None else range(max(0, number + 1 - last), number + 1))
        read["nodes"] += len(found)
        return found

    def nodes_of(numbers: list[int]) -> list[Any]:
        names = [behind_objects.OBJECT if number == 1 else behind_objects.UNKNOWN for number in numbers]
        return [SimpleNamespace(kind=one, type_address=kind if one == behind_objects.OBJECT else 0) for one in names]

    graph = SimpleNamespace(blocks_end=blocks, chain=chain, nodes_of=nodes_of, owners_of=lambda ids: [1 for _ in ids])
    paths: Any = SimpleNamespace(references=SimpleNamespace(graph=graph))
    assert behind_objects._types(paths, {seed: 5}, {5}) == {5: kind}
    assert read["nodes"] < 2 * behind_objects.SAMPLES * 1024


def test_words_that_may_be_certificates(monkeypatch: pytest.MonkeyPatch, rng: random.Random) -> None:
    """Check that blocks whose words all lead to one place cause one reading of it."""
    read: Counter[int] = Counter()
    place = 16 * rng.randrange(1 << 10, 1 << 20)

    def read_available(address: int, size: int) -> bytes:
        read[address] += 1
        return bytes(size)

    least = connections.table(connections.TABLE)["least_size"]
    rows = [(1 << 30, least, 0)] * rng.randrange(10, 20)
    monkeypatch.setattr(connections, "_native", SimpleNamespace(blocks_with=lambda *_arguments: rows))
    space = SimpleNamespace(
        read=lambda _address, size: struct.pack("<Q", place) * (size // 8), read_available=read_available
    )
    target: Any = SimpleNamespace(space=space, machine=X86_64, mappings=SimpleNamespace(find=lambda _address: 1))
    assert connections._find_named(target, SimpleNamespace(), [1], None) == ([], False)  # type: ignore[arg-type]
    assert read == {place: 1}


def blocks_like_connections(
    monkeypatch: pytest.MonkeyPatch, count: int, cert: int, read_available: Callable[[int, int], bytes]
) -> Any:
    """Return a target with so many large blocks of different words, of which one may point to a CERT."""
    size = connections.table(connections.TABLE)["largest_size"]
    rows = [(number << 20, size, 8) for number in range(1, count + 1)]
    monkeypatch.setattr(connections, "_native", SimpleNamespace(blocks_with=lambda *_arguments: rows))

    def read(address: int, size: int) -> bytes:
        return struct.pack(f"<{size // 8}Q", cert, *(address + 8 * place + 1 for place in range(1, size // 8)))

    space = SimpleNamespace(read=read, read_available=read_available)
    return SimpleNamespace(space=space, machine=X86_64, mappings=SimpleNamespace(find=lambda _address: 1))


def test_words_of_candidates_are_not_kept(monkeypatch: pytest.MonkeyPatch, rng: random.Random) -> None:
    """Check that the memory for blocks that begin like connections does not grow with the bytes of the blocks."""
    place = 16 * rng.randrange(1 << 10, 1 << 20)
    count = rng.randrange(100, 150)
    target = blocks_like_connections(
        monkeypatch, count, place, lambda address, size: struct.pack("<Q", address + 8).ljust(size, b"\0")
    )
    taken = peak(lambda: connections._find_named(target, SimpleNamespace(), [1], None))  # type: ignore[arg-type]
    assert taken < (1 << 20) + 1000 * count


@pytest.mark.parametrize("limit", ["MAX_CANDIDATES", "ASKED", "MAX_WORDS", "MAX_MATCHED"])
def test_limits_for_candidates(limit: str, monkeypatch: pytest.MonkeyPatch, rng: random.Random) -> None:
    """Check that blocks beyond a limit are left out, and that the answer says so."""
    asked: list[int] = []

    def read_available(address: int, size: int) -> bytes:
        asked.append(address)
        return bytes(size)

    count = rng.randrange(20, 30)
    target = blocks_like_connections(monkeypatch, count, 16, read_available)
    assert connections._find_named(target, SimpleNamespace(), [1], None) == ([], False)  # type: ignore[arg-type]
    assert asked == [16]
    monkeypatch.setattr(connections, limit, 0 if limit == "ASKED" else 10)
    assert connections._find_named(target, SimpleNamespace(), [1], None) == ([], True)  # type: ignore[arg-type]


class _File:
    """An ELF file with a large table of DT_RELR with all bits set."""

    build_id = None
    segments = (
        image.Segment(image.PT_DYNAMIC, image.PF_R, 0, 1 << 32, 48, 48, 8),
        image.Segment(image.PT_GNU_RELRO, image.PF_R, 0, 1 << 20, 4096, 4096, 8),
    )

    def __init__(self) -> None:
        self.read: Counter[int] = Counter()

    def bytes_at(self, address: int, size: int) -> bytes:
        """Return the bytes there, and count them."""
        self.read[address] += size
        if address == 1 << 32:
            return struct.pack("<6Q", agreement.DT_RELR, 1 << 33, agreement.DT_RELRSZ, 1 << 16, 0, 0)
        return (struct.pack("<2Q", 1 << 20, (1 << 64) - 1) * (size // 16)) if address == 1 << 33 else b"\1" * size


@pytest.mark.parametrize("is_there", [False, True])
def test_names_of_one_large_file(is_there: bool, rng: random.Random) -> None:
    """Check a core that names one file again and again: its relocations are read only if the memory has the places
    that they change, and only a limited number of times."""
    elf: Any = _File()
    space: Any = SimpleNamespace(
        read_available=lambda address, size: bytes(size) if is_there and address == 1 << 20 else b"", read=_absent
    )
    loaded: Any = SimpleNamespace(segments=[], bias=0, mappings=[], data_ranges=lambda _machine: [])
    left = agreement.ComparisonBudget(10 << 16)
    for _ in range(rng.randrange(20, 40)):
        assert not agreement.agreement(X86_64, space, loaded, elf, left).holds
    assert elf.read[1 << 33] == 0 if not is_there else 0 < elf.read[1 << 33] <= 2 << 16
    # The places after the first bits repeat: each is taken once.
    places = range(1 << 20, (1 << 20) + 64 * WORD, WORD)
    packed = struct.pack("<2Q", 1 << 30, (1 << 64) - 1) * 100 + struct.pack("<2Q", 1 << 20, (1 << 64) - 1)
    assert list(agreement._unpacked(X86_64, packed, places)) == list(places)


def _absent(address: int, _size: int) -> bytes:
    raise Fault(address)


def test_greenlets_that_lead_to_many_words(rng: random.Random) -> None:
    """Check greenlets whose fields lead to words that are no frames."""
    asked: Counter[str] = Counter()

    def is_frame(_address: int) -> bool:
        asked["words"] += 1
        return False

    one: Any = object.__new__(Coroutines)
    one._space = SimpleNamespace(
        machine=X86_64, word=lambda _address: 1 << 20, read_available=lambda _at, size: b"\x10" * size
    )
    one._release, one._half, one._words_left, one._is_frame = _Release(), None, 100, is_frame
    assert [one.greenlet(number) for number in range(rng.randrange(10, 20))].count(None) >= 10
    assert asked["words"] <= 100 + 64
