"""The form of documents: rows, their number and their sums, the limit of size, and files of earlier releases."""

from __future__ import annotations

import ctypes.util
import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest
from support.nouns import GRAPHS, PLAIN
from support.programs import KINDS, Running, c_program, python_program, running, said
from support.schemas import assert_fits

from gdbheap.commands.surface.registry import COMMANDS
from gdbheap.report.formats.json import MOST, bounded, document, text_of
from gdbheap.report.formats.schema import answers_of, fields_of
from gdbheap.snapshots.file import NUMBER, read

OLDER = Path(__file__).parent / "kept" / "format-1.heap"
LISTED = ("rows", "count", "more", "total")


@dataclass(frozen=True)
class Inner:
    """An item with a list."""

    name: str
    parts: list[str]


@dataclass(frozen=True)
class Answer:
    """An answer that is a list."""

    sums: ClassVar[tuple[str, ...]] = ("size", "count")
    rows: list[Inner]
    matching: int
    size: int
    count: int
    others: list[Inner]


def answered(*words: str) -> dict[str, Any]:
    """Return the document of a command line, after a check against its schema."""
    done = said(*words, "--json")
    found: dict[str, Any] = json.loads(done.stdout)
    assert done.returncode == 0 and (len(done.stdout) <= MOST + 1 or "--top=all" in words), (words, len(done.stdout))
    assert_fits(found)
    return found


ALL = ("--top=all",)


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Yield a Python process with holes in its memory and a large map."""
    with running(python_program(KINDS[0], "fragmented", 5, 60), tmp_path_factory.mktemp("documents")) as found:
        yield found


@pytest.mark.parametrize("noun", [*PLAIN, *GRAPHS], ids=lambda noun: noun or "heap")
def test_no_larger_than_asked_for(noun: str, target: Running) -> None:
    """Check that a document has the rows of the table and at most 64 KiB without --top, five rows with --top=5, all
    rows with --top=all, and always the sums of all rows."""
    words = [*filter(None, [noun]), str(target.pid)]
    for _ in range(5):
        # The kernel may drop pages of files at any time: all three must be of the same state.
        before, few, some, every = (answered(*words, *more) for more in ([*ALL], ["--top=5"], [], [*ALL]))
        if before.get("total") == every.get("total"):
            break
    assert all(not value for key, value in every.items() if key == "more" or key.endswith("_more")), noun
    if "rows" not in every:
        return
    whole = len(every["rows"])
    for found, most in ((few, 5), (some, COMMANDS[noun].top), (every, None)):
        assert found["count"] - found["more"] == len(found["rows"]) <= (most or whole), noun
        assert found["count"] == every["count"] and found["total"] == every["total"], noun
    assert len(few["rows"]) == min(5, whole) and every["count"] == whole
    # A row has an additional key if a list in it was cut.
    assert len({tuple(key for key in row if not key.endswith("_more")) for row in few["rows"]}) == min(1, whole)


def test_answers_that_are_lists() -> None:
    """Check that each answer has its rows first, or names each of several lists, and that no name stands for two
    kinds of lists."""
    several = {"heap", "heap diff", "gdbheap calls", "heap growth", "heap check-advice", "heap at", "gdbheap watch"}
    for command in COMMANDS.values():
        for kind in answers_of(command.answer):
            keys = [field.key for field in fields_of(kind)]
            assert keys[:4] == list(LISTED) or "rows" not in keys, kind
            lists = [field.key for field in fields_of(kind) if str(field.type).startswith("list[gdbheap.")]
            assert "rows" in keys or not lists or command.name in several, (command.name, lists)


def test_lists_are_cut(rng: random.Random) -> None:
    """Check random lists: the document is small enough, or has one item of each list; the omitted items are counted."""
    for _ in range(12):
        sizes = [rng.choice((0, 1, 20, 600)) for _ in range(3)]
        rows = [
            Inner("x" * rng.randrange(400), ["y" * 30] * rng.choice((0, 3, sizes[2] // 4))) for _ in range(sizes[0])
        ]
        answer = Answer(rows, len(rows) + 7, 1, 2, rows[: sizes[1]])
        content = document("heap holes", [{"kind": "core"}], [], [], answer)
        assert (content["count"], content["more"]) == (len(rows) + 7, 7)
        assert content["total"] == {"size": 1, "count": 2}
        kept = rng.choice(("", "rows"))
        found = json.loads(text := bounded(content, kept=kept))
        assert len(text) <= MOST or kept or len(found["rows"]) == 1
        assert len(found["rows"]) + found["more"] == found["count"]
        assert len(found["others"]) + found["others_more"] == len(answer.others)
        for row, whole in zip(found["rows"], rows):
            assert row["name"] == whole.name and len(row["parts"]) + row.get("parts_more", 0) == len(whole.parts)
        assert not kept or len(found["rows"]) == len(rows)
        assert len(text_of(content)) > MOST or found == json.loads(text_of(content))


def test_targets() -> None:
    """Check that unknown values of a target are null, that several targets are a list, and that none is null."""
    answer = Answer([], 0, 0, 0, [])
    one = document("heap", [{"kind": "core", "core": "/core"}], [], [], answer)
    assert one["target"]["core"] == "/core" and one["target"]["allocator"] is None and "targets" not in one
    two = document("heap", [{"pid": 1}, {"pid": 2}], [], [], answer)
    assert [each["pid"] for each in two["targets"]] == [1, 2] and "target" not in two
    assert document("heap", [], [], [], answer)["target"] is None


def test_several_targets(target: Running, tmp_path: Path) -> None:
    """Check the targets of a comparison and of commands about processes; a snapshot is marked as one."""
    with running(c_program("steps", 3, 0), tmp_path) as other:
        pids = [target.pid, other.pid]
        found = answered("processes", *map(str, pids))
        assert [each["pid"] for each in found["targets"]] == [row["pid"] for row in found["rows"]]
        assert sorted(each["pid"] for each in found["targets"]) == sorted(pids)
    looked = answered("diff", str(OLDER), str(target.pid))
    assert [each["kind"] for each in looked["targets"]] == ["snapshot", "process"]
    assert answered(str(OLDER))["target"]["kind"] == "snapshot"
    about = answered("arenas", str(target.pid))["target"]
    assert about["allocator"] == f"glibc {about['glibc']}" and about["python"]


def test_every_allocator_is_a_row(tmp_path: Path) -> None:
    """Check that the totals of a program with jemalloc are jemalloc's, and not the empty ones of malloc."""
    library = ctypes.util.find_library("jemalloc")
    if library is None:
        pytest.skip("no library of jemalloc here")
    with running(c_program("steps", 4, 0), tmp_path, {"LD_PRELOAD": library}) as target:
        target.go_on(f"big {64 << 20}")
        answers = {noun: answered(noun, str(target.pid), "--top=all") for noun in ("arenas", "sizes", "chunks")}
        heap = answered(str(target.pid))
        refused = said("trim", str(target.pid), "--json")
    arenas, sizes, chunks = answers.values()
    assert heap["target"]["allocator"] == "jemalloc" and heap["in_use"] >= 64 << 20
    for found in answers.values():
        rows = [row for row in found["rows"] if row["allocator"] == "jemalloc"]
        assert rows and all(row.keys() == rows[0].keys() for row in found["rows"])
    for key in ("system", "in_use", "free"):
        apart = arenas["mmapped_chunks"]["bytes"] if key != "free" else 0
        assert arenas["total"][key] == sum(row[key] for row in arenas["rows"]) + apart
    assert arenas["total"]["in_use"] >= 64 << 20 and sizes["total"]["used"] >= 64 << 20
    for key in ("used", "free", "used_count", "free_count"):
        assert sizes["total"][key] == sum(row[key] for row in sizes["rows"])
    assert chunks["total"]["bytes"] == sum(row["size"] for row in chunks["rows"])
    assert [row["fast"] for row in arenas["rows"] if row["allocator"] == "jemalloc"][0] is None
    error = json.loads(refused.stdout)["error"]
    assert refused.returncode == error["status"] == 5 and error["next"]


def test_file_of_an_earlier_release(target: Running) -> None:
    """Check that the records of a snapshot of format 1 have their values under the present names."""
    found = read(str(OLDER)).snapshot
    assert NUMBER > 1 and found.objects is not None and found.holes is not None and found.arenas is not None
    (row,) = [row for row in found.objects.rows if row.type == "__main__.Session"]
    assert (row.count, row.own, row.buffers, row.bytes) == (2000, 128000, 35728, 128000 + 35728)
    assert found.objects.total.own == 2617600 and found.objects.all_used.count == 19337
    assert found.owners is not None and found.owners[0].own == 64 and found.owners[0].path is not None
    assert len(found.holes.rows) == found.holes.count == 1 and found.arenas.total.system == 2306048
    assert (found.ledger.rss.bytes, found.ledger.rss.swapped, found.ledger.rss.lazily_freed) == (10924032, 0, 0)
    assert found.ledger.container is not None and found.ledger.container.path == "/service"
    assert found.ledger.container.pressure is not None and found.ledger.container.pressure.scope == "machine"
    assert found.ledger.holders[0].alone
    page = answered(str(OLDER))
    assert page["rss"]["bytes"] == 10924032 and page["holders"] and page["in_use"] > 0
    same = answered("diff", str(OLDER), str(OLDER))
    assert same["types"] == same["sizes"] == same["holders"] == [] and same["rss"] == 0
