"""Texts of findings: each kind of figures has some; a finding can be written and read back, with or without the
fields that only its text needs."""

from __future__ import annotations

import dataclasses
import json
import random
from typing import Any

import pytest
from support.finding_kinds import FOLDERS, KINDS

from gdbheap.answers.accounting.describing import BlockDescription, BlockKind
from gdbheap.answers.accounting.records import from_json, to_json
from gdbheap.answers.shared_out import HolderPart
from gdbheap.findings.capacity.rule import RoomOfKind
from gdbheap.findings.cycles.rule import Cycles
from gdbheap.findings.equal_strings.rule import EqualStrings
from gdbheap.findings.finding import Finding
from gdbheap.findings.fragmented.rule import Fragmented
from gdbheap.findings.free_chunks.rule import FreeChunks
from gdbheap.findings.free_lists.rule import FreeLists
from gdbheap.findings.growing_buffers.rule import GrowingBuffers
from gdbheap.findings.holder.rule import LargeHolder, MainHolder, Trait
from gdbheap.findings.jemalloc_unused.rule import JemallocUnused
from gdbheap.findings.leak_like.rule import LeakLike
from gdbheap.findings.lost_blocks.counted import RC, SHARED_PTR, CountedCycles
from gdbheap.findings.lost_blocks.rule import LostBlocks
from gdbheap.findings.lost_references.rule import LostReferences
from gdbheap.findings.main_top.rule import MainTop
from gdbheap.findings.mappings.rule import MAPPED_MEMORY, Mapped
from gdbheap.findings.musl_mappings.rule import MuslMappings
from gdbheap.findings.other_allocator.rule import OtherMalloc
from gdbheap.findings.pinned_pages.rule import PinnedPages
from gdbheap.findings.pinners import NO_PINNER, Pinner
from gdbheap.findings.pymalloc_arenas.rule import PymallocArenas
from gdbheap.findings.registry import RULES
from gdbheap.findings.runtimes.rule import RuntimeMemory
from gdbheap.findings.slack.rule import UnusedCapacity
from gdbheap.findings.small_views.rule import ViewsOfType
from gdbheap.findings.sparse_huge_pages.rule import SparseHugePages
from gdbheap.findings.stacks.rule import ThreadStacks
from gdbheap.findings.thread_tops.rule import LargestTop, ThreadTops
from gdbheap.findings.thresholds import DEFAULT, RISEN, SET
from gdbheap.findings.uncollectable_cycles.rule import UncollectableCycles
from gdbheap.host.tmpfs import TmpfsFile
from gdbheap.report.formats.json import text_of as json_of
from gdbheap.report.words.findings import advice_of, keys_of, numbers_of, text_of, words_for

KIB, MIB = 1 << 10, 1 << 20
# Values of fields that allow only certain words.
CHOICES: dict[tuple[str, str], list[Any]] = {
    ("Mapped", "kind"): list(Mapped.ids),
    ("UncollectableCycles", "kind"): ["hidden", "likely", "untracked", "finalizer"],
    ("RuntimeMemory", "kind"): ["jvm", "redis", "postgresql", "pypy", "openblas"],
    ("ThreadTops", "largest"): [LargestTop(MIB, 2, None, ""), LargestTop(MIB, 3, 17, "worker")],
    ("ContainerRoom", "kinds"): [
        [RoomOfKind("std::vector items", "vector", 3, MIB, 9, False)],
        [RoomOfKind("buckets", "buckets", 3, MIB, 9), RoomOfKind("HashMap or HashSet table", "rust table", 1, MIB, 0)],
    ],
    ("LostBlocks", "cycles"): [
        CountedCycles(),
        CountedCycles(SHARED_PTR, 9, MIB),
        CountedCycles(RC, 1, MIB, others=True, heads=1, looked_at=2 * MIB),
    ],
    ("KeptByViews", "types"): [
        [ViewsOfType("numpy.ndarray", 1, 80, MIB)],
        [ViewsOfType("memoryview", 2, 9, MIB), ViewsOfType("a.B", 1, 7, KIB)],
    ],
    ("Mapped", "left"): [[], [TmpfsFile("/dev/shm/a", MIB, MIB)]],
    ("UnusedCapacity", "shown"): [[("list", 1)], [("dict", 2), ("set", 1)]],
    ("LargeHolder", "holder"): [
        MainHolder(
            MIB, MIB, 0.5, "app.cache", "dict", 9, "variable", 4096, [], [HolderPart("str", 9, MIB)], "[1] .x .y"
        ),
        MainHolder(MIB, None, None, "data of libx.so", None, None, "library"),
        MainHolder(
            MIB,
            MIB,
            0.5,
            "app.running",
            "set",
            9,
            "variable",
            4096,
            retained=KIB,
            alone=False,
            also=["app.gate"],
            together=MIB,
            tasks=9,
            task_kind="task",
        ),
    ],
    ("LeakLike", "holder"): [
        None,
        MainHolder(
            MIB,
            MIB,
            0.5,
            "log.handlers[0].buffer",
            "list",
            9,
            "variable",
            4096,
            traits=[
                Trait("buffering log handler", "logging.handlers.MemoryHandler", 1, "shop"),
                Trait("label", "route", 9, "'/a'", True),
                Trait("database", "/var/a.db", 1, "file"),
                Trait("database", "", 1, None),
                Trait("opened by ended threads", "", 1),
            ],
        ),
    ],
    ("GrowingBuffers", "what"): [None, BlockDescription(BlockKind("items", "list"), 4096)],
}
MADE: dict[str, Any] = {
    "int": lambda rng: rng.randrange(1, 1 << 40),
    "str": lambda rng: f"n{rng.randrange(100)}",
    "bool": lambda rng: rng.random() < 0.5,
    "int | None": lambda rng: rng.choice([None, rng.randrange(1 << 20)]),
    "str | None": lambda rng: rng.choice([None, "sys.modules"]),
    "Pinner": lambda rng: rng.choice([NO_PINNER, Pinner("app.log", 3, 9, "app.old", 2), Pinner("'log' in app", 9, 9)]),
    "list[str]": lambda rng: rng.choice([[], ["Go"], ["Go", "the JVM"]]),
}


def made(kind: type[Any], rng: random.Random) -> Any:
    """Return figures of that kind with made-up numbers and names."""
    values = {}
    for field in dataclasses.fields(kind):
        choices = [SET, RISEN, DEFAULT] if field.name == "origin" else CHOICES.get((kind.__name__, field.name))
        values[field.name] = rng.choice(choices) if choices else MADE[str(field.type)](rng)
    if values.get("enabled", 0) is not None and "threshold" in values:
        values |= {"count": 1, "threshold": 2}
    return kind(**values)


def finding(figures: Any, **changes: Any) -> Finding:
    """Return the finding with those figures."""
    name = figures.kind if isinstance(figures, Mapped) else figures.ids[0].replace("*", "jvm")
    return dataclasses.replace(Finding(name, 9 * MIB, figures), **changes)


def held_by(
    path: str, what: str = "dict", part: str = "str", kind: str = "variable", way: str | None = None
) -> LargeHolder:
    """Return the figures of a holder."""
    return LargeHolder(MainHolder(MIB, MIB, 0.5, path, what, 9, kind, 4096, [], [HolderPart(part, 9, MIB)], way), 9)


def test_each_kind_has_words() -> None:
    """Check that each finding's figures have texts, and that each has a rule, except "growing", which needs two
    snapshots, and "holder"."""
    assert len(KINDS) == len(FOLDERS) == len(RULES) + 2
    assert all(words_for(kind).figures is kind for kind in KINDS)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_written_and_read_back(kind: type[Any], rng: random.Random) -> None:
    """Check that a finding equals the one read from its JSON; a document keeps ids, bytes and figures."""
    for _ in range(20):
        one, gone = finding(made(kind, rng), within="slack", also_within=["cycles"]), finding(made(kind, rng))
        one = dataclasses.replace(one, shared=[("main-top", 7)], alternatives=[gone])
        assert from_json(Finding, json.loads(json.dumps(one, default=to_json))) == one
        row = json.loads(json_of({"finding": one}))["finding"]
        read = from_json(Finding, row)
        assert (read.id, read.bytes, read.within, read.listed) == (one.id, one.bytes, one.within, row["figures"])
        assert row["text"] == text_of(one) and row["advice"] == advice_of(one) and row["text"] and row["advice"]
        assert "also_within" not in row and all(type(value) is int for value in row["figures"].values())


def test_the_keys_of_a_document() -> None:
    """Check the keys of a document: those of the reference, in its order; an unknown figure is left out."""
    one = finding(Cycles(3, None, "T", 5 * MIB, False, None, None))
    keys = ["id", "bytes", "text", "advice", "figures", "commands", "environment", "within", "is_doubtful"]
    assert list(vars(keys_of(one))) == keys and keys_of(one).figures == {"objects": 3}
    stacks = keys_of(finding(ThreadStacks(9, 2 * MIB, 77, "worker"))).figures
    assert list(stacks.items()) == [("threads", 9), ("largest", 2 * MIB)]


def test_beside_other_findings() -> None:
    """Check the text of a finding that shares bytes with other findings: it names them."""
    figures = MainTop(8 * MIB, 128 * KIB, DEFAULT, False)
    start = "the main arena's top chunk holds 8.0 MiB of free resident pages. The chunk is above trim_threshold, "
    one = finding(figures, shared=[("large-chunks", 120 * KIB), ("thread-tops", 80 * KIB)])
    assert text_of(one).startswith(start)
    told = ". 120.0 KiB more of this memory is counted in finding 'large-chunks', 80.0 KiB in finding 'thread-tops'"
    assert text_of(one).endswith(told)
    told = ". Finding 'cycles' may count the same bytes: do not add them up"
    assert text_of(finding(figures, within="cycles")).endswith(told)
    two = finding(figures, within="cycles", also_within=["slack"])
    told = ". Findings 'cycles' and 'slack' may count the same bytes: do not add them up"
    assert text_of(two).endswith(told)


def test_others_by_their_numbers() -> None:
    """Check that a list names another finding by its number, since the list has no ids."""
    figures = MainTop(8 * MIB, 128 * KIB, DEFAULT, False)
    held = finding(figures, within="holder", also_within=["slack"], shared=[("large-chunks", 120 * KIB)])
    rows = [finding(held_by("a")), held, finding(held_by("b")), Finding("slack", MIB, figures)]
    text = text_of(held, numbers_of([*rows, Finding("large-chunks", MIB, figures)]))
    told = ". 120.0 KiB more of this memory is counted in finding 5. Findings 1, 3 and 4 may count the same bytes: "
    assert text.endswith(f"{told}do not add them up")
    assert not [row.id for row in rows if row.id in text]


def test_remedy_of_another() -> None:
    """Check that the advice of a finding also offers the remedy of another finding for the same bytes."""
    figures = MainTop(8 * MIB, 128 * KIB, DEFAULT, False)
    advice, gone = advice_of(finding(figures)), finding(FreeChunks(1, MIB, 0, 0))
    told = f"{advice}; or call malloc_trim(0) after each burst of work"
    assert advice_of(finding(figures, alternatives=[gone])).startswith(told)


@pytest.mark.parametrize(
    ("figures", "text"),
    [
        (SparseHugePages(4 * MIB, 2, 3 * MIB, False, False),
            "transparent huge pages: 3.0 MiB of 4.0 MiB contains only zeros. The program touched a part of each of "
            "2 pages of 2 MiB, and the kernel made the whole pages resident"),
        (SparseHugePages(4 * MIB, 2, 3 * MIB, True, False),
            "transparent huge pages: about 3.0 MiB of 4.0 MiB contains only zeros. The program touched a part of "
            "each of 2 pages of 2 MiB, and the kernel made the whole pages resident"),
        (Mapped(4096, 2 * MIB, MIB, MAPPED_MEMORY, "x", [], False, MIB),
            "private memory that the program or a library mapped itself, without malloc; the largest mapping, at "
            "0x1000 (x), has 1.0 MiB"),
        (FreeChunks(1, MIB, 0, 0),
            "1 hole outside top chunks keeps free pages resident: 1.0 MiB in the main arena"),
        (FreeChunks(1200, MIB, 3 * MIB, 2), "resident: 1.0 MiB in the main arena, 3.0 MiB in 2 arenas of threads"),
        (FreeChunks(9, 0, 4 * MIB, 3, 2 * MIB, 2, "last of x"),
            "9 holes outside top chunks keep free pages resident: 4.0 MiB in 3 arenas of threads; no thread "
            "uses 2 of these arenas any more (2.0 MiB); the block after the largest hole is held by last of x"),
        (FreeChunks(9, MIB, 0, 0, pinner=Pinner("app.log", 30, 32)),
            "; the blocks after 30 of the 32 largest holes are held by app.log"),
        (FreeChunks(9, MIB, 0, 0, pinner=Pinner("app.log", 9, 9)),
            "; the blocks after the 9 largest holes are held by app.log"),
        (PinnedPages(9, 9, MIB, Pinner("app.log", 6, 9)),
            "a block in use; of 9 examined blocks, 6 are held by app.log"),
        (PinnedPages(9, 9, MIB, Pinner("app.log", 5, 9, "app.old", 3), 4 * MIB),
            "a block in use; of 9 examined blocks, 5 are held by app.log, 3 by app.old. Freeing the blocks would "
            "return 4.0 MiB, including their own 1.0 MiB"),
        (FreeChunks(9, MIB, 0, 0, pinner=Pinner("app.log", 6, 9, "app.old", 2)),
            "; the blocks after 6 of the 9 largest holes are held by app.log, after 2 by app.old"),
        (PymallocArenas(1, 3, MIB, 4, Pinner("app.log", 3, 3)),
            "an arena only when it is empty; all 3 examined blocks are held by app.log"),
        (MuslMappings(1, 3, MIB, 1, Pinner("'log' in app", 3, 3)),
            "a mapping only when it is empty; all 3 examined blocks are held by 'log' in app"),
        (ThreadTops(3, MIB, 128 * KIB, 0, 2, DEFAULT, LargestTop(MIB, 2, None, ""), False),
            "2 arenas of threads keep 1.0 MiB of free resident pages at their ends, which malloc_trim() does not "
            "reach. Arena 2 (no thread now) keeps the most, 1.0 MiB. free() returns the memory at an arena's end only "
            "if this is at least trim_threshold, which is 128.0 KiB (the default); arena_max is not set"),
        (ThreadTops(3, MIB, MIB, 8, 2, RISEN, LargestTop(MIB, 2, 7, ""), True),
            "2 arenas of threads keep 1.0 MiB of free resident pages at their ends beyond 128.0 KiB each, which "
            "malloc_trim() does not reach. Arena 2 (thread 7, without a name) keeps the most, 1.0 MiB. free() returns "
            "the memory at an arena's end only if this is at least trim_threshold, which is 1.0 MiB "
            "(raised when a large block was freed); at most 8 arenas may be made"),
        (Cycles(1, 0, "a.T", MIB, False, 1, 700),
            "1 object forms uncollected cycles, most of type a.T (1.0 MiB). The garbage collector is switched off "
            "(gc.disable(), or a threshold of 0)"),
        (Cycles(2, 1, "T", MIB, False, 1000, 7000),
            "2 objects form uncollected cycles, most of type T (1.0 MiB). The garbage collector is on, but has not "
            "examined their generation since then (the youngest generation has 1,000 of the 7,000 objects that "
            "start it)"),
        (Cycles(2, None, "T", MIB, False, None, None),
            "2 objects form uncollected cycles, most of type T (1.0 MiB). The garbage collector has not run since"),
        (Cycles(92_000, None, "T", MIB, False, None, None, "a.T.up → a.T.down → the same a.T", 46),
            ". In 46 groups of objects, the cycle is a.T.up → a.T.down → the same a.T"),
        (Cycles(2, None, "T", MIB, False, None, None, "a.T.own → the same a.T", 1),
            ". In 1 group of objects, the cycle is a.T.own → the same a.T"),
        (UncollectableCycles(9, "T", MIB, "hidden", "", "a.T.up → the same a.T", 3),
            "cycles keep 9 objects alive, most of type T (1.0 MiB). In 3 groups of objects, the cycle is a.T.up → "
            "the same a.T"),
        (GrowingBuffers(4096, MIB, 3, 2, MIB, SET, None, KIB, 2 * KIB),
            "holes contain 3 copies of the beginning of a buffer at 0x1000 (1.0 MiB; its copies have 1.0 KiB to "
            "2.0 KiB) and 1 other buffer. realloc() leaves such copies when it moves a growing buffer. It leaves "
            "none for a buffer of at least mmap_threshold, which is 1.0 MiB (set): it moves the pages of such a "
            "buffer"),
        (Mapped(4096, 2 * MIB, MIB, MAPPED_MEMORY, "[heap]", [], False),
            "private memory that the program or a library mapped itself, without malloc; the largest mapping, at "
            "0x1000 ([heap]), has 1.0 MiB"),
        (Mapped(4096, MIB, MIB, MAPPED_MEMORY, "x", [], False, mappings=1200, alike=1200, each=64 * KIB),
            "without malloc; 1,200 mappings of 64.0 KiB; the largest mapping, at"),
        (Mapped(4096, MIB, MIB, MAPPED_MEMORY, "x", [], False, mappings=1201, alike=1200, each=64 * KIB),
            "without malloc; 1,201 mappings, 1,200 of them of 64.0 KiB; the largest mapping, at"),
        (Mapped(4096, MIB, MIB, MAPPED_MEMORY, "x", [], False, mappings=90, alike=40, each=64 * KIB),
            "without malloc; 90 mappings; the largest mapping, at"),
        (Mapped(4096, MIB, MIB, MAPPED_MEMORY, "x", [], False, mappings=1, alike=1, each=MIB),
            "without malloc; 1 mapping (the kernel merges adjacent mappings, so there may have been many calls of "
            "mmap()); the largest mapping, at"),
        (OtherMalloc("allocator", "libx.so", "libx.so and other anonymous memory"),
            "libx.so and other anonymous memory: it is unknown how much of this is free in libx.so"),
        (RuntimeMemory("redis", "/bin/redis", "it has x", False, "jemalloc"),
            "Redis allocates its data with jemalloc (/bin/redis, it has x): it is unknown how much of this "
            "memory is in use"),
        (RuntimeMemory("redis", "/bin/redis", "it has x", False, None),
            "Redis allocates its data with malloc (/bin/redis, it has x): it is unknown how much of this "
            "memory is in use"),
        (RuntimeMemory("go", "/bin/x", "by its name", True, None),
            "memory of Go, according to the names of its mappings (/bin/x, by its name): it is unknown how much of "
            "this memory is in use"),
        (LeakLike(4096, 9000, 10000, 200, 150, "dict", "a.T", None, False),
            "one dict at 0x1000 keeps 9,000 of 10,000 objects of type a.T, and 75 % of the 200 B in use. It is a "
            "leak if the container was meant to stay small; its age is unknown. A later 'heap diff' shows whether it "
            "grows"),
        (LeakLike(4096, 1, 1, 0, 1, "dict", "T", "a.b", True), "one dict at 0x1000 (a.b) keeps 1 of 1 object of type"),
        (LostReferences(1, "T", 1, []),
            "1 object (of type T) is kept alive, with everything to which it refers, by references that no object "
            "holds: C code took these references and never released them (Py_DECREF), or keeps them where gdbheap "
            "does not look"),
        (LostReferences(9, "T", 1, []),
            "9 objects (1 of type T) are kept alive, with everything to which they refer, by references that no "
            "object holds: C code took these references and never released them (Py_DECREF), or keeps them where "
            "gdbheap does not look"),
        (FreeLists(0, 0, 0, "", 0, 7, 9 * MIB),
            "7 blocks of malloc hold no int or float of Python 2 any more (9.0 MiB). The interpreter keeps this "
            "memory for new int and float objects"),
        (FreeLists(9, 5, MIB, "tuple", 2 * MIB, 1, MIB),
            "the interpreter keeps 9 objects on its free lists for reuse, most of type tuple (5, 1.0 MiB); 1 "
            "block of malloc holds no int or float of Python 2 any more (1.0 MiB)"),
        (FreeLists(1, 1, MIB, "tuple", MIB),
            "the interpreter keeps 1 object on its free lists for reuse, most of type tuple (1, 1.0 MiB)"),
        (PymallocArenas(1, 3, MIB, 4),
            "1 of 4 arenas of pymalloc is mostly free; 3 blocks keep it, with 1.0 MiB in total. pymalloc returns "
            "an arena only when it is empty"),
        (PymallocArenas(2, 3, MIB, 4), "2 of 4 arenas of pymalloc are mostly free"),
        (MuslMappings(1, 3, MIB, 1),
            "1 of 1 mapping of musl's malloc is mostly free; 3 blocks keep it, in slots of 1.0 MiB in total. musl "
            "returns a mapping only when it is empty"),
        (held_by("x", way="holds it, through 5 blocks (48, 48 bytes)"),
             "held by x (dict of 9; 9 x str); its largest block is reached through 5 blocks (48, 48 bytes)"),
        (held_by("x", way="holds it at +40, through 3 blocks (48, 48, 48 bytes)"),
             "held by x (dict of 9; 9 x str); its largest block is reached through 3 blocks (48, 48, 48 bytes)"),
        (held_by("x", way="[1] holds it at +40, through 3 blocks (48, 48, 48 bytes)"),
             "; its largest block is at [1], through 3 blocks (48, 48, 48 bytes)"),
        (held_by("x", way="[1] .y"), "; its largest block is at [1] .y"),
        (UnusedCapacity(1, 0, 2, 0, MIB, 4096, 2 * KIB, "dict", [("list", 1), ("dict", 2)], MIB),
            "unused room in 1 list and 2 dicts, 1.0 MiB of it resident: lists and byte arrays keep their capacity "
            "until they shrink below half and dicts and sets keep their tables when entries are deleted; the dict "
            "at 0x1000 has the most unused room, 2.0 KiB"),
    ],
)  # fmt: skip
def test_texts(figures: Any, text: str) -> None:
    """Check texts that no test program produces, or not in every form."""
    assert text in text_of(finding(figures))


@pytest.mark.parametrize(
    ("figures", "advice"),
    [
        (held_by("conn", "sqlite3.Connection", "block of 4,384 bytes"), "PRAGMA cache_size limits the page cache"),
        (
            held_by("conn", "sqlite3.Connection", "list"),
            "close() the connection, or drop the objects to which its registered functions and callbacks refer: "
            "most of this memory is Python objects, which no PRAGMA frees",
        ),
        (held_by("objects in the Java heap (…)", kind="java heap"), "drop the references to direct ByteBuffers"),
        (
            RuntimeMemory("v8", "/bin/node", "", True, None),
            "--max-old-space-size bounds objects of JavaScript alone: Web",
        ),
        (
            EqualStrings(9, 2, 7, keeps_interned=True),
            "keep one copy of each value where the strings are created: x = seen.setdefault(x, x), with a dict "
            "named seen. Avoid sys.intern(x): this interpreter, CPython 3.12, never frees interned strings",
        ),
        (held_by("seen", way="has it as key 0 .text"), "use an id or a name as the key"),
        (held_by("gc.garbage", "list"), "remove __del__() from these classes"),
        (held_by("weakref.finalize._registry", "dict"), "pass a callback that does not refer to the watched object"),
        (held_by("jobs.queue", "collections.deque"), "give the queue a maxsize, so that producers wait"),
        (held_by("frames", "list", "mmap.mmap"), "close() each mmap that is no longer used"),
        (LostBlocks(9, 9, MIB, 40, 48), "'heap catch malloc --min=40 --max=48' stops"),
        (
            LostBlocks(9, 9, MIB, 40, 48, beside_malloc=True),
            "start the program with PYTHONTRACEMALLOC=1: 'heap pyobjects --by=line'",
        ),
        (
            LostReferences(9, "T", 1, [], True),
            "start the program with PYTHONMALLOC=malloc under 'gdbheap trace --stacks=1'",
        ),
        (FreeLists(0, 0, 0, "", 0, 7, 9 * MIB), "call gc.collect(), which frees these blocks, then malloc_trim(0)"),
        (
            PinnedPages(1000, 1000, MIB),
            "'heap pins --allocator=glibc' lists the blocks; once they are freed, malloc_trim(0) returns all these "
            "pages. Drop them, or allocate long-lived data before all other data, or separately",
        ),
        (
            PinnedPages(77_920, 77_920, MIB),
            "'heap pins --allocator=glibc' lists the blocks; once they are freed, malloc_trim(0) returns all these "
            "pages. Allocate long-lived data before all other data, or separately",
        ),
        (
            FreeChunks(9, 0, MIB, 2),
            "call malloc_trim(0) after the work that left these holes ('heap trim --yes' calls it now). 'heap "
            "holes' lists the holes. Each arena keeps its own "
            "peak: before you change a setting, try fewer arenas, or another allocator, on a recording ('gdbheap "
            "trace', then 'gdbheap replay --what-if')",
        ),
        (
            JemallocUnused(1, MIB, 0, ["x"], False, None, "redis"),
            "in the program (4096: all arenas), or 'redis-cli MEMORY PURGE', or",
        ),
        (
            JemallocUnused(1, MIB, 0, ["duckdb"], False, None),
            "NULL, NULL, NULL, 0) in the program (4096: all arenas), or start",
        ),
        (
            Fragmented("jemalloc", "slabs", 1, 2, 3, 4, 1, 64, 5, "redis"),
            "run 'redis-cli CONFIG SET activedefrag yes', which moves the blocks: this redis has its own jemalloc. "
            "MEMORY PURGE returns none of this",
        ),
        (
            Fragmented("jemalloc", "slabs", 1, 2, 3, 4, 1, 64, 5, pins=True),
            "copy long-lived data into new blocks before any old block is freed (build the container anew), then "
            'release the empty slabs (mallctl("arena.4096.purge")). Or allocate long-lived data before the work '
            "that filled these slabs. 'heap pins' lists the blocks that pin the most memory, 'heap sizes' lists all "
            "sizes",
        ),
        (
            Fragmented("jemalloc", "slabs", 1, 2, 3, 4, 1, 64, 5),
            "allocate long-lived data before the work that filled these slabs. 'heap sizes' lists all sizes",
        ),
        (
            Mapped(4096, 2 * MIB, MIB, MAPPED_MEMORY, "", ["Go", "V8"], False),
            "an address in this memory. It may belong to Go or V8",
        ),
        (
            Mapped(4096, 2 * MIB, MIB, MAPPED_MEMORY, "", [], True),
            "find the code that maps this memory: malloc did not request it. 'heap at ADDRESS' shows what gdbheap "
            "knows about an address in this memory. The command shows, while the program runs, which code maps more "
            "memory",
        ),
        (OtherMalloc("allocator", "libx.so", ""), "ask libx.so itself for its figures: gdbheap cannot read them"),
        (OtherMalloc("jemalloc", "jemalloc", "", "call x()"), "call x()"),
        (
            Cycles(2, 0, "T", MIB, True, 1, 2),
            "call gc.collect(), then call gc.enable(), or gc.collect() from time to time. If that frees nothing, "
            "call gc.unfreeze() first: gc.freeze() hides objects from the collector. 'heap unreachable' lists the "
            "cycles. To avoid them, clear the named reference (del, None, weakref)",
        ),
        (
            Cycles(2, 1, "T", MIB, False, 1, 2),
            "call gc.collect() after the code that leaves the cycles. 'heap unreachable' lists the cycles. To "
            "avoid them, clear the named reference (del, None, weakref)",
        ),
        (
            LeakLike(4096, 1, 1, 0, 1, "dict", "T", None, True),
            "limit its size, or drop data that is no longer used; 'heap why 0x1000' shows what keeps it",
        ),
        (
            MainTop(MIB, 2 * MIB, RISEN, True),
            "call malloc_trim(0) after each burst of work ('heap trim --yes' calls it now), "
            "or start the program with MALLOC_TRIM_THRESHOLD_=131072",
        ),
        (
            UnusedCapacity(0, 0, 0, 1, MIB, 4096, 2 * KIB, "set", [("set", 1)], MIB),
            "replace an emptied set with set(x); 'heap why ADDRESS' shows what holds the container",
        ),
    ],
)
def test_advice(figures: Any, advice: str) -> None:
    """Check the texts of advice that depend on a finding's figures."""
    assert advice in advice_of(finding(figures))


def test_a_remedy_is_there_where_one_is_promised(rng: random.Random) -> None:
    """Check that each kind of finding that can be an alternative of another finding has a remedy, for all figures."""
    remedies = {kind for kind in KINDS for _ in range(9) if words_for(kind).remedy(made(kind, rng))}
    names = {name for kind in remedies for name in kind.ids}
    assert {"free-chunks", "large-chunks", "main-top", "thread-tops"} <= names
