"""musl's mallocng: every block against the program's own table, ``malloc_usable_size``, which is the requested size,
and mallocng's own count of slots.

The builds are those that are here: the system's, and those made by ``scripts/musls.sh``.
"""

from __future__ import annotations

import bisect
import os
import random
import struct
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from support import kernel, nouns
from support.ledger_lines import check_families, line_of, roots, virtual_size
from support.library import heap_of, warnings_of
from support.mallocng import BUILDS, program
from support.musls import ALPINE, HERE, SYSTEM, built, python
from support.other_sizes import others
from support.programs import KERNEL_CORE, Running, ask, gdbheap, running
from support.tables import busy, held

from gdbheap.allocators.mallocng.allocator import MallocngAllocator
from gdbheap.heap import Heap

NAME = "mallocng"
# Commands about glibc's malloc alone.
REFUSED = {"trim", "check-advice"}
MESSAGES = (b"Symbol not found: ", b"Dynamic loading not supported")
every_build = pytest.mark.parametrize(
    ("release", "flags"), BUILDS, ids=["-".join([name, *flags]) for name, flags in BUILDS]
)


def check_blocks(heap: Heap, rows: list[tuple[int, int, int]]) -> set[int]:
    """Check that every pointer is that of a block in use of the requested size; return the other blocks in use."""
    found = heap.allocator(MallocngAllocator)
    for pointer, usable, requested in rows:
        block = found.find(pointer)
        assert block is not None and (block.address, block.state) == (pointer, "used"), (hex(pointer), usable, block)
        assert block.end - pointer == usable == requested, (hex(pointer), usable, block)
        assert pointer - block.size < block.address <= block.end <= pointer + block.size
    blocks = {address for address, _size in found.first_used(0, 1 << 62, 1 << 62)}
    assert len(blocks) == sum(count for _size, count in found.used_sizes())
    return {address for address in blocks - {pointer for pointer, *_ in rows} if not is_message(heap, address)}


def is_message(heap: Heap, address: int) -> bool:
    """Return whether a block has the message of dlerror(): dlsym(), which the program calls, made it."""
    return heap.target.space.read_available(address, 100).partition(b"\0")[0].startswith(MESSAGES)


def check_counts(heap: Heap) -> None:
    """Check that mallocng counts as many slots of each class, and that there is no damage."""
    found = heap.allocator(MallocngAllocator)
    usage = found.store.usage()
    assert len(usage) == 48 and sum(row.walked for row in usage) > 100
    assert [(row.size, row.walked) for row in usage] == [(row.size, row.said) for row in usage]
    found.check()
    assert found.damage == [] and found.store.moving == 0


@every_build
def test_one_thread(release: str, flags: tuple[str, ...], rng: random.Random, tmp_path: Path) -> None:
    """Check every block, and no other; the ledger is the kernel's, and the bytes in use are the requested ones."""
    with running(program(release, flags, 1, 20_000, rng, tmp_path), tmp_path) as target:
        _visited, rows = held(tmp_path)
        with heap_of(str(target.pid)) as heap:
            assert check_blocks(heap, rows) == set()
            check_counts(heap)
        answer = ask("", str(target.pid))
        check_families(answer["ledger"])
        assert (roots(answer["ledger"], "resident"), roots(answer["ledger"], "swapped")) == kernel.rollup(target.pid)
        assert roots(answer["ledger"], "virtual") == virtual_size(target)
        used = line_of(answer, f"{NAME}.used")
        assert 0 <= used["virtual"] - sum(requested for *_, requested in rows) < 100
        assert answer["warnings"] == [] and "other-allocator" not in [row["id"] for row in answer["findings"]]


@every_build
def test_threads(release: str, flags: tuple[str, ...], rng: random.Random, tmp_path: Path) -> None:
    """Check eight threads that free each other's blocks, four of which have ended, and the same in a core."""
    with running(program(release, flags, 8, 20_000, rng, tmp_path), tmp_path) as target:
        _visited, rows = held(tmp_path)
        with heap_of(str(target.pid)) as heap:
            assert check_blocks(heap, rows) == set()
            check_counts(heap)
            sizes = heap.allocator(MallocngAllocator).size_classes()
        core = target.as_form(KERNEL_CORE)
    with heap_of(core) as heap:
        assert check_blocks(heap, rows) == set()
        check_counts(heap)
        assert heap.allocator(MallocngAllocator).size_classes() == sizes


@every_build
def test_moved(release: str, flags: tuple[str, ...], rng: random.Random, tmp_path: Path) -> None:
    """Check threads inside realloc, which moves mappings outside of mallocng's lock: no damage is reported, and no
    other block is lost."""
    command = [built("moved", release, *flags), "4", str(rng.getrandbits(30)), str(tmp_path / "table")]
    with busy(command, tmp_path, {}, lambda folder: (folder / "table").exists()) as target:
        for _ in range(40):
            time.sleep(rng.uniform(0.0, 0.01))
            with heap_of(str(target.pid)) as heap:
                found = heap.allocator(MallocngAllocator)
                found.check()
                assert [row for row in found.damage if not row.transient] == []
                assert bool(found.damage or found.store.moving) == any(
                    "stopped inside mallocng" in warning for warning in warnings_of(heap)
                )
                # 32 blocks are held, of which each thread may be moving one.
                assert 28 <= sum(count for size, count in found.used_sizes() if size > 131052)


@pytest.fixture(scope="module")
def emptied(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[tuple[Running, Path]]:
    """Yield a program that has freed most of its blocks, with its folder."""
    folder, rng = tmp_path_factory.mktemp("emptied"), random.Random(random.getrandbits(64))
    with running(program(SYSTEM, (), 2, 20_000, rng, folder), folder) as target:
        target.go_on("drop")
        yield target, folder


def test_answers_agree(emptied: tuple[Running, Path], rng: random.Random) -> None:
    """Check the answers about one heap against the table: blocks, sizes, holes, pins, the map, and the graph."""
    target, folder = emptied
    pid, blocks = str(target.pid), {pointer: usable for pointer, usable, _requested in held(folder)[1]}
    held_ones = dict(blocks)
    with heap_of(pid) as heap:
        rows = heap.allocator(MallocngAllocator).first_used(0, 1 << 62, 1 << 62)
        unlisted = [block for block in map(heap.block_at, {row[0] for row in rows} - set(blocks)) if block is not None]
        assert all(is_message(heap, block.address) for block in unlisted) and len(unlisted) <= 1
        blocks |= {block.address: block.end - block.address for block in unlisted}
    for pointer, usable in rng.sample(sorted(held_ones.items()), 4):
        inside = pointer + rng.randrange(usable)
        block = ask("at", pid, hex(inside))["block"]
        assert (block["allocator"], block["state"], block["address"]) == (NAME, "used", pointer)
        assert block["asked"] == usable
    listed = ask("chunks", pid, "--state=used", "--sort=address", "--top=0")
    assert {row["address"]: row["asked"] for row in listed["rows"]} == blocks and listed["count"] == len(blocks)
    (sizes,) = others(ask("sizes", pid, "--top=0"))
    assert (sizes["allocator"], sizes["total"]["used_count"]) == (NAME, len(blocks))
    assert sizes["asked"] == sum(blocks.values()) and sizes["freed"] is None
    classes = ask("arenas", pid)["classes"]
    assert sum(row["used_count"] for row in classes) == len(blocks)
    assert sum(row["asked"] for row in classes) == sum(blocks.values())
    check, drawn = ask("check", pid), ask("map", pid)
    assert check["ok"] and check["chunks"] > len(blocks) and NAME in {group["kind"] for group in drawn["rows"]}
    starts = sorted(blocks)
    for hole in ask("holes", pid, "--min=1", "--top=0")["rows"]:
        at = bisect.bisect_left(starts, hole["address"] + hole["size"])
        assert not at or starts[at - 1] + blocks[starts[at - 1]] <= hole["address"], "a block in use is in a hole"
    pins = ask("pins", pid, "--top=0")["rows"]
    members = {row["address"] for pin in pins for row in pin["members"]}
    assert members and members <= set(blocks)
    # The table is in shared memory, which is not searched for pointers: only blocks that a stack still has are reached.
    lost = ask("unreachable", pid, "--top=1")
    assert lost["damage"] == [] and 0.9 * len(blocks) <= lost["lost_blocks"]["blocks"] <= len(blocks)


def test_states(rng: random.Random, tmp_path: Path) -> None:
    """Check that each held block is listed as used, each freed one as free unless its mapping is gone, and none as
    both; the same in a core."""
    with running(program(SYSTEM, (), 2, 20_000, rng, tmp_path), tmp_path) as target:
        before = {pointer for pointer, *_ in held(tmp_path)[1]}
        target.go_on("drop")
        kept = {pointer for pointer, *_ in held(tmp_path)[1]}
        freed = before - kept
        # The thread that ends last has freed most of the other's: one slot in thirty may be left, of 3,000.
        assert len(freed) > len(kept) > 40
        pid = str(target.pid)
        check_states(pid, kept, freed)
        check_states(target.as_form(KERNEL_CORE), kept, freed)


def check_states(target: str, kept: set[int], freed: set[int]) -> None:
    """Check the chunks of each state."""
    listed = {
        state: ask("chunks", target, f"--state={state}", "--sort=address", "--top=0")
        for state in ("used", "free", "tcache")
    }
    rows = {state: [row for row in answer["rows"] if row["allocator"] == NAME] for state, answer in listed.items()}
    assert {row["state"] for row in rows["used"]} == {"used"} and {row["state"] for row in rows["free"]} == {"free"}
    assert rows["tcache"] == []
    used = {row["address"] for row in rows["used"]}
    assert kept <= used and not freed & used
    (sizes,) = others(ask("sizes", target, "--top=0"))
    assert (len(rows["used"]), len(rows["free"])) == (sizes["total"]["used_count"], sizes["total"]["free_count"])
    starts = [row["address"] for row in rows["free"]]
    with heap_of(target) as heap:
        for pointer in freed:
            at = bisect.bisect_right(starts, pointer) - 1
            is_free = at >= 0 and pointer < rows["free"][at]["address"] + rows["free"][at]["size"]
            # Whole groups are unmapped with their last block.
            assert is_free or heap.block_at(pointer) is None, hex(pointer)


def test_of_glibc_alone(emptied: tuple[Running, Path]) -> None:
    """Check that a command that is only about glibc's malloc is refused in one line that names the present malloc."""
    for words in (("trim", "--dry-run"), ("stats",)):
        done = gdbheap(words[0], str(emptied[0].pid), *words[1:])
        assert done.returncode == 5 and done.stdout == "", (words, done.stdout, done.stderr)
        assert len(done.stderr.splitlines()) == 1 and "musl" in done.stderr, done.stderr


def test_given_back(rng: random.Random, tmp_path: Path) -> None:
    """Check that the promised bytes are returned with the blocks that keep them, except mappings of sizes that come
    and go often."""
    with running(program(SYSTEM, (), 40, 20_000, rng, tmp_path), tmp_path) as target:
        target.go_on("drop")
        (found,) = [row for row in ask("", str(target.pid))["findings"] if row["id"] == "musl-mappings"]
        before = kernel.rollup(target.pid)[0]
        target.go_on("empty")
        freed = before - kernel.rollup(target.pid)[0]
        assert 0.7 * found["bytes"] <= freed, (found, freed)


@pytest.mark.parametrize("where", [HERE, ALPINE])
@pytest.mark.parametrize("mode", ["pymalloc", "malloc"])
def test_python_above(mode: str, where: str, rng: random.Random, tmp_path: Path) -> None:
    """Check that Python's objects are in pools or in slots, as many as the program counts, and that each question
    about them is answered."""
    count = rng.randrange(2000, 9000)
    source = (
        "import signal\n"
        "class Marked: __slots__ = ('value',)\n"
        f"kept = [Marked() for _ in range({count})]\n"
        "held = bytearray(3_000_000)\n"
        "signal.pause()\n"
    )
    with running([*python(where), "-c", source], tmp_path, {"PYTHONMALLOC": mode}) as target:
        pid = str(target.pid)
        answer = ask("pyobjects", pid, "--top=0")
        counts = {row["type"]: row["count"] for row in answer["rows"]}
        assert counts["__main__.Marked"] == count and answer["warnings"] == [] and answer["damage"] == []
        top = max(ask("owners", pid)["rows"], key=lambda row: row["bytes"])
        assert "held" in str(top) and top["bytes"] >= 3_000_000
        assert ask("check", pid)["ok"]
        address = next(row["address"] for row in ask("retained", pid)["rows"] if row["type"] == "bytearray")
        assert "held" in str(ask("why", pid, hex(address)))
        assert ask("holes", pid, "--min=1")["damage"] == ask("info", pid)["damage"] == []
        assert ask("threads", pid)["damage"] == ask("unreachable", pid)["damage"] == []


@pytest.mark.parametrize("where", [HERE, ALPINE])
def test_every_command(where: str, rng: random.Random, tmp_path: Path) -> None:
    """Check a CPython with musl's malloc and without pymalloc: each command answers, or says in one line that it is
    only about glibc's malloc. Objects are found by their type.
    """
    count, kept = rng.randrange(2000, 9000), tmp_path / "kept.heap"
    source = (
        "import signal\n"
        "class Marked: __slots__ = ('value',)\n"
        f"kept = [Marked() for _ in range({count})]\n"
        "signal.pause()\n"
    )
    with running([*python(where), "-c", source], tmp_path, {"PYTHONMALLOC": "malloc"}) as target:
        pid = str(target.pid)
        listed = ask("chunks", pid, "--type=__main__.Marked", "--top=0")
        address = hex(rng.choice(listed["rows"])["address"])
        plain = [noun or "heap" for noun in (*nouns.PLAIN, *nouns.GRAPHS) if noun not in REFUSED]
        lines = [*plain, *(f"{noun} {address}" for noun in nouns.ADDRESSED), f"snapshot {kept}"]
        answered = gdbheap("shell", pid, input="\n".join(lines))
        refused = [gdbheap(noun, pid) for noun in REFUSED]
    assert (answered.returncode, answered.stderr) == (0, "") and kept.exists()
    assert all(done.returncode == 5 and done.stdout == "" for done in refused)
    assert all(len(done.stderr.splitlines()) == 1 and "musl" in done.stderr for done in refused), refused
    assert listed["count"] == count and {row["asked"] for row in listed["rows"]} <= {24, 32, 40}


def test_damage(rng: random.Random, tmp_path: Path) -> None:
    """Check a byte after a block, a slot's header, and a group's mask, each overwritten: each is named at its place."""
    with running(program(SYSTEM, (), 1, 20_000, rng, tmp_path), tmp_path) as target:
        _visited, rows = held(tmp_path)
        with heap_of(str(target.pid)) as heap:
            found = heap.allocator(MallocngAllocator)
            blocks = [block for block in (found.find(pointer) for pointer, *_ in rows) if block is not None]
        within = [block for block in blocks if block.end % 16 != 12]
        behind, header = rng.sample(within, 2)
        with open(f"/proc/{target.pid}/mem", "r+b", buffering=0) as memory:
            os.pwrite(memory.fileno(), b"\x55", behind.end)
            os.pwrite(memory.fileno(), struct.pack("<H", 0x1234), header.address - 2)
        answer = ask("check", str(target.pid), status=1)
        met = {row["what"] for row in answer["damage"]}
        assert met == {"byte behind a block", "header of a slot in use"}, answer["damage"]
        assert all(0 <= block.address - row["address"] < block.size for block, row in zip(
            sorted((behind, header), key=lambda block: block.address),
            sorted(answer["damage"], key=lambda row: row["address"]),
        ))  # fmt: skip


def test_place_of_another(rng: random.Random, tmp_path: Path) -> None:
    """Check that a mapping whose header names another group's structure, because realloc is moving it, is no damage,
    and that one that names no structure is damaged."""
    with ExitStack() as runs:
        mapped: list[int] = []
        # The number in use at the end is random.
        while len(mapped) < 2:
            runs.close()
            target = runs.enter_context(running(program(SYSTEM, (), 1, 20_000, rng, tmp_path), tmp_path))
            _visited, rows = held(tmp_path)
            mapped = [pointer for pointer, usable, _requested in rows if usable > 131052]
        # The group, whose header names its structure, is at the start of the mapping.
        first, second = (pointer & -kernel.PAGE for pointer in rng.sample(mapped, 2))
        with open(f"/proc/{target.pid}/mem", "r+b", buffering=0) as memory:
            (another,) = struct.unpack("<Q", os.pread(memory.fileno(), 8, second))
            os.pwrite(memory.fileno(), struct.pack("<Q", another), first)
            moved = ask("check", str(target.pid))
            os.pwrite(memory.fileno(), struct.pack("<Q", 0x1234), first)
            damaged = ask("check", str(target.pid), status=1)
    assert [row["what"] for row in moved["damage"]] == ["caught inside malloc: memory of a group"]
    assert any("stopped inside mallocng" in warning for warning in moved["warnings"])
    assert [(row["address"], row["what"]) for row in damaged["damage"]] == [(first, "meta of a group")]
