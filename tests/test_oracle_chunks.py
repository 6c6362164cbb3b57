"""``heap sizes``, ``heap chunks`` and ``heap arenas --detail`` against malloc_info(), chunks' own headers and programs'
tables, and against each other."""

from __future__ import annotations

import fnmatch
import json
import random
import re
import struct
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from support import kernel
from support.arena_cases import CASES, HEAP, Table, recorder
from support.programs import FORMS, PROCESS, Running, ask, c_program, gdbheap, python_program, running

pytestmark = pytest.mark.cases(6)

IS_MMAPPED, FLAGS = 2, 7
TOTALS = re.compile(r'^<total type="(fast|rest)" count="(\d+)" size="(\d+)"/>$', re.MULTILINE)
BIN = re.compile(r'^  <size from="(\d+)" to="(\d+)" total="\d+" count="(\d+)"/>$', re.MULTILINE)
UNSORTED = re.compile(r'^  <unsorted from="\d+" to="\d+" total="\d+" count="(\d+)"/>$', re.MULTILINE)
FREE = ("free", "fast", "tcache")
ORDERS = {
    "size": lambda row: (-row["size"], row["address"]),
    "address": lambda row: row["address"],
    "arena": lambda row: (row["arena"] is None, row["arena"], -row["size"], row["address"]),
}


@dataclass(frozen=True)
class Asked:
    """A waiting program, all of its chunks, and the other two answers."""

    target: Running
    table: Table
    chunks: dict[str, Any]
    sizes: dict[str, Any]
    arenas: dict[str, Any]

    def of_state(self, *states: str) -> list[dict[str, Any]]:
        """Return the chunks in one of the states."""
        return [row for row in self.chunks["rows"] if row["state"] in states]


def asked(target: Running, name: str, table: Table) -> Asked:
    """Return all answers that are compared here."""
    arenas = ask("arenas", name, "--sort=index", "--detail")
    return Asked(target, table, ask("chunks", name), ask("sizes", name), arenas)


@pytest.mark.parametrize("name", CASES)
def test_books_of_all_kinds(name: str, rng: random.Random, tmp_path: Path) -> None:
    """Check that the three answers agree with each other, with the program and with malloc_info()."""
    with recorder(CASES[name], rng, tmp_path) as target:
        found = asked(target, str(target.pid), Table(tmp_path / "table"))
        check_sums(found)
        check_used(found, CASES[name].threads if CASES[name].operations else 0)
        check_bins(found)


@pytest.mark.parametrize("form", FORMS)
def test_books_of_every_form(form: str, rng: random.Random, tmp_path: Path) -> None:
    """Check that the answers agree for a process and both kinds of cores."""
    with recorder(CASES["8 threads"], rng, tmp_path) as target:
        found = asked(target, target.as_form(form), Table(tmp_path / "table"))
        check_sums(found)
        check_bins(found)


def check_sums(found: Asked) -> None:
    """Check that sizes and chunks have the same counts, that their bytes are those of the arenas, and no overlaps."""
    sizes, arenas = found.sizes, found.arenas["rows"]
    rows = sizes["rows"]
    for column, states in (("used", ("used", "mmapped")), ("free", FREE)):
        by_size = Counter(row["size"] for row in found.of_state(*states))
        assert {row["size"]: row[f"{column}_count"] for row in rows if row[column]} == by_size
        assert all(row[column] == row["size"] * row[f"{column}_count"] for row in rows)
    for key in ("used", "free", "used_count", "free_count"):
        assert sizes["total"][key] == sum(row[key] for row in rows)
    assert (
        sizes["total"]["used_count"]
        == sum(row["used_count"] for row in arenas) + found.arenas["mmapped_chunks"]["count"]
    )
    assert sizes["total"]["free_count"] == sum(row["free_count"] for row in arenas)
    assert sizes["total"]["free"] == sum(row[state] for row in arenas for state in FREE)
    assert sizes["top"] == sum(row["top"] for row in arenas)
    parts = (sizes["total"]["used"], sizes["total"]["free"], sizes["top"], sizes["overhead"])
    assert sum(parts) == found.arenas["total"]["system"]
    assert sizes["mapped_count"] == found.arenas["mmapped_chunks"]["count"] == len(found.of_state("mmapped"))
    assert (found.chunks["count"], found.chunks["total"]["bytes"]) == (
        len(found.chunks["rows"]),
        sum(row["size"] for row in found.chunks["rows"]),
    )
    ascending = sorted(found.chunks["rows"], key=lambda row: int(row["address"]))
    assert all(one["address"] + one["size"] <= two["address"] for one, two in zip(ascending, ascending[1:]))


def check_used(found: Asked, threads: int) -> None:
    """Check that live pointers have the size and the kind in the word before them; the others are tcaches and dtvs."""
    live = {}
    for pointer in found.table.live:
        word = kernel.read_u64(found.target.pid, pointer - 8)
        live[pointer] = (word & ~FLAGS, "mmapped" if word & IS_MMAPPED else "used")
    ours = {row["address"]: (row["size"], row["state"]) for row in found.of_state("used", "mmapped")}
    assert {pointer: ours.get(pointer) for pointer in live} == live
    assert len(ours) - len(live) == threads + max(threads - 1, 0)
    assert all(row["what"] for row in found.of_state("used", "mmapped"))
    assert not any(row["what"] for row in found.of_state(*FREE, "top", "fencepost"))


def check_bins(found: Asked) -> None:
    """Check against malloc_info() the chunks in fast bins and in bins of each arena; each large bin has one name."""
    for index, body in HEAP.findall(found.target.stderr):
        arena = found.arenas["rows"][int(index)]
        bins = {row["kind"]: (row["chunks"], row["bytes"]) for row in arena["bins"]}
        own = [row for row in found.chunks["rows"] if row["arena"] == int(index)]
        for kind in ("fast", "tcache", "unsorted", "small", "large"):
            sizes = [row["size"] for row in own if (row["list"] or "").split(" ")[0] == kind]
            assert bins.pop(kind) == (len(sizes), sum(sizes))
        assert bins == {}
        free = [row["size"] for row in own if row["state"] == "free"]
        totals = {kind: (int(count), int(size)) for kind, count, size in TOTALS.findall(body)}
        assert totals["fast"] == (sum(row["state"] == "fast" for row in own), arena["fast"])
        # malloc_info: the rest includes the top chunk, and adds up size words with their flags.
        assert totals["rest"][0] == len(free) + 1
        assert 0 <= totals["rest"][1] - sum(free) - arena["top"] <= FLAGS * len(free)
        check_lists(own, body)
        # The first break need not be 16-aligned: the bytes up to alignment belong to the arena but to no heap.
        assert 0 <= arena["system"] - sum(heap["size"] for heap in arena["heaps"]) < 16
        assert sum(heap["top"] for heap in arena["heaps"]) == arena["top"]


def check_lists(own: list[dict[str, Any]], body: str) -> None:
    """Check that each bin that malloc_info() counts has the chunks of one name, and so has the unsorted one."""
    waiting = [row for row in own if row["state"] == "free"]
    unsorted = [int(count) for count in UNSORTED.findall(body)]
    assert sum(row["list"] == "unsorted" for row in waiting) == sum(unsorted)
    named = set()
    for first, last, count in BIN.findall(body):
        if not int(last) & FLAGS:
            continue  # a fast bin; for bins, malloc_info() prints size words with PREV_INUSE
        ends = int(first) & ~FLAGS, int(last) & ~FLAGS
        inside = [row["list"] for row in waiting if row["list"] != "unsorted" and ends[0] <= row["size"] <= ends[1]]
        assert Counter(inside) == {inside[0]: int(count)}, (first, last)
        assert inside[0] not in named and int(inside[0].split()[1], 16) <= ends[0]
        named.add(inside[0])
    assert named == {row["list"] for row in waiting} - {"unsorted"}
    for row in own:
        if row["state"] in ("fast", "tcache"):
            assert row["list"] == f"{row['state']} {row['size']:#x}"
        elif row["state"] == "free":
            assert row["list"] == "unsorted" or row["list"].startswith("small" if row["size"] < 0x400 else "large")
        else:
            assert row["list"] is None


def filters(whole: list[dict[str, Any]], rng: random.Random) -> Iterator[tuple[list[str], list[dict[str, Any]]]]:
    """Yield command lines with random filters, and the result of a plain filter of the whole list."""
    states = sorted({row["state"] for row in whole})
    arenas = sorted({row["arena"] for row in whole if row["arena"] is not None})
    for _ in range(12):
        words, kept = [], whole
        if rng.random() < 0.7:
            chosen = rng.sample(states, rng.randrange(1, len(states) + 1))
            words.append(f"--state={','.join(chosen)}")
            kept = [row for row in kept if row["state"] in chosen]
        if rng.random() < 0.5:
            low = rng.choice(whole)["size"]
            words.append(f"--min={low}")
            kept = [row for row in kept if row["size"] >= low]
        if rng.random() < 0.5:
            high = rng.choice(whole)["size"]
            words.append(f"--max={high}")
            kept = [row for row in kept if row["size"] <= high]
        if rng.random() < 0.4:
            arena = rng.choice(arenas)
            words.append(f"--arena={arena}")
            kept = [row for row in kept if row["arena"] == arena]
        yield words, kept


@pytest.mark.parametrize("name", ["8 threads", "many mmapped chunks"])
def test_filters(name: str, rng: random.Random, tmp_path: Path) -> None:
    """Check that each filter, order and --top equals the whole list, filtered, sorted and cut by the test."""
    with recorder(CASES[name], rng, tmp_path) as target:
        pid = str(target.pid)
        whole = ask("chunks", pid)["rows"]
        for words, kept in filters(whole, rng):
            order, top = rng.choice(sorted(ORDERS)), rng.choice([1, 5, 3000, 10**9])
            answer = ask("chunks", pid, *words, f"--sort={order}", f"--top={top}")
            assert answer["rows"] == sorted(kept, key=ORDERS[order])[:top], words
            assert (answer["count"], answer["total"]["bytes"]) == (len(kept), sum(row["size"] for row in kept)), words


@pytest.mark.in_turn("form", 1)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", ["stripped", "unstripped"])
def test_types(kind: str, form: str, rng: random.Random, tmp_path: Path) -> None:
    """Check that --type lists exactly the live objects of a class, mmapped ones too, and no buffer that looks like
    one."""
    table = tmp_path / "table"
    with running(python_program(kind, "large", rng.randrange(1 << 30), table), tmp_path) as target:
        name = target.as_form(form)
        truth = {kind: set(places) for kind, places in json.loads(table.read_text()).items()}
        plain = truth.pop("bytes")
        assert plain <= {row["address"] for row in ask("chunks", name, "--type=bytes")["rows"]}
        for pattern in ("__main__.Blob", "*.Row", "__main__.*", "__main__.[!B]*", "Blob"):
            wanted = {kind: places for kind, places in truth.items() if fnmatch.fnmatchcase(kind, pattern)}
            answer = ask("chunks", name, f"--type={pattern}")
            assert {row["address"]: row["what"] for row in answer["rows"]} == {
                place: kind for kind, places in wanted.items() for place in places
            }
            assert answer["count"] == len(answer["rows"])
        few = ask("chunks", name, "--type=__main__.*", "--min=2K", "--state=used", "--arena=main", "--top=3")
        mapped = ask("chunks", name, "--type=__main__.Blob", "--state=mmapped")
    assert len(few["rows"]) == 3 < few["count"]
    assert {(row["state"], row["arena"]) for row in few["rows"]} == {("used", 0)}
    assert all(row["size"] > 200_000 and row["arena"] is None for row in mapped["rows"])


def test_types_agree_with_pyobjects(rng: random.Random, tmp_path: Path) -> None:
    """Check types whose objects are all large: numbers and bytes equal those of ``heap pyobjects``."""
    command = python_program("stripped", "large", rng.randrange(1 << 30), tmp_path / "table")
    with running(command, tmp_path) as target:
        types = {row["type"]: row for row in ask("pyobjects", str(target.pid))["rows"]}
        for name in ("__main__.Row", "__main__.Blob", "type"):
            answer = ask("chunks", str(target.pid), f"--type={name}")
            assert (answer["count"], answer["total"]["bytes"]) == (types[name]["count"], types[name]["own"])


@pytest.mark.parametrize("form", FORMS)
def test_whose_thread_cache(form: str, rng: random.Random, tmp_path: Path) -> None:
    """Check that each thread's cache has at least the blocks that the thread has freed, and has the thread's name."""
    with running(c_program("caches", rng.randrange(1 << 30), 9, tmp_path / "table"), tmp_path) as target:
        tids = {int(path.name) for path in Path(f"/proc/{target.pid}/task").iterdir()}
        name = target.as_form(form)
        arenas, cached = ask("arenas", name), ask("chunks", name, "--state=tcache")
    truth = list(struct.iter_unpack("<3Q", (tmp_path / "table").read_bytes()))
    threads = {row["tid"]: row for row in arenas["thread_caches"]}
    assert threads.keys() == tids == {tid for tid, _, _ in truth}
    for tid, row in threads.items():
        own = [(size, blocks) for owner, size, blocks in truth if owner == tid]
        rest = row["chunks"] - sum(blocks for _, blocks in own), row["bytes"] - sum(s * blocks for s, blocks in own)
        # Also a few small ones from the start of a thread.
        assert 0 <= rest[0] <= 4 and 0 <= rest[1] <= 400 * rest[0], (row, own)
    assert sum(row["chunks"] for row in threads.values()) == cached["count"]
    assert sum(row["bytes"] for row in threads.values()) == cached["total"]["bytes"]
    assert len({row["address"] for row in threads.values()}) == len(tids)
    if form == PROCESS:
        assert {row["name"] for row in threads.values()} == {"caches"}


@pytest.mark.parametrize("form", FORMS)
def test_headers_and_reserves(form: str, rng: random.Random, tmp_path: Path) -> None:
    """Check that ``heap at`` names the owner of a header or reserve in a thread's heap."""
    with recorder(CASES["arenas of several heaps"], rng, tmp_path) as target:
        name = target.as_form(form)
        rows = [(row["index"], heap) for row in ask("arenas", name)["rows"] for heap in row["heaps"] if row["index"]]
        mapped = kernel.maps(target.pid) if form != FORMS[2] else []
        for index, heap in rng.sample(rows, min(4, len(rows))):
            header = ask("at", name, hex(heap["start"] + rng.randrange(32)))
            assert (header["block"], header["mapping"]["whose"]) == (None, f"header of arena {index}'s heap")
            if any(part.start <= heap["end"] < part.end for part in mapped) and heap["end"] % (64 << 20):
                reserve = ask("at", name, hex(heap["end"] + rng.randrange(16)))
                assert (reserve["block"], reserve["mapping"]["whose"]) == (None, f"reserve of arena {index}")


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["--state=busy"], "busy"),
        (["--state=used,"], "''"),
        (["--arena=one"], "one"),
        (["--arena=77"], "77"),
        (["--min=x"], "x"),
        (["--state=free", "--type=*"], "--type"),
        (["--sort=state"], "state"),
    ],
)
def test_wrong_words(words: list[str], named: str, rng: random.Random, tmp_path: Path) -> None:
    """Check one line that names the word, and status 2."""
    with recorder(CASES["a few blocks"], rng, tmp_path) as target:
        done = gdbheap("chunks", str(target.pid), *words)
    assert done.returncode == 2 and len(done.stderr.splitlines()) == 1 and named in done.stderr
