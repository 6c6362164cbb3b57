"""What is behind a container's last item is no reference, and what only a std::weak_ptr keeps is no object."""

from __future__ import annotations

import random
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from support.library import heap_of
from support.programs import SOURCES, ask, release_program, running, since

from gdbheap.answers.at import at

BYTES = 40_000


def asked(kind: str, count: int, folder: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the first page and what is unreachable of a program with COUNT objects of that KIND."""
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("no C++ compiler")
    program = folder / "left_over"
    subprocess.run([compiler, "-std=c++14", "-O1", str(SOURCES / "left_over.cc"), "-o", str(program)], check=True)
    with running([str(program), kind, str(count)], folder) as target:
        return ask("", str(target.pid)), ask("unreachable", str(target.pid))


def test_items_that_were_taken(rng: random.Random, tmp_path: Path) -> None:
    """An empty vector holds nothing, whatever its buffer still has."""
    count = rng.randrange(300, 500)
    page, answer = asked("vector", count, tmp_path)
    groups = answer["lost_blocks"]["bytes"] + answer["doubtful"]["bytes"]
    assert groups >= (count - 2) * BYTES
    (row,) = [row for row in page["findings"] if row["id"] == "holder"]
    assert "held by" not in row["text"] and "in use, or lost" in row["text"] and "limit" not in row["advice"]


def test_items_that_are_there(rng: random.Random, tmp_path: Path) -> None:
    """A vector holds its items, in a buffer of which a part is free."""
    page, answer = asked("kept", rng.randrange(300, 500), tmp_path)
    assert answer["lost_blocks"]["bytes"] + answer["doubtful"]["bytes"] < BYTES
    assert "held by 'pending' in" in str([row["text"] for row in page["findings"]])


@pytest.mark.parametrize("is_aligned", [False, True])
def test_tables_of_the_dynamic_linker(is_aligned: bool, rng: random.Random, tmp_path: Path) -> None:
    """Words in the unfilled part of a table of mappings keep nothing, and the table itself is not lost; it begins where
    its block does if that is aligned, as it is with one count of eight or fewer."""
    count = 164 if is_aligned else rng.randrange(100, 200)
    _page, answer = asked("linked", count, tmp_path)
    lost = [row for row in answer["rows"] if row["group"] == "lost_blocks"]
    assert sum(row["bytes"] for row in lost) >= 0.9 * count * BYTES
    assert sum(row["count"] for row in answer["rows"]) <= count


@pytest.mark.parametrize("kind", ["tail", "end"])
def test_what_malloc_added_to_nodes(kind: str, rng: random.Random, tmp_path: Path) -> None:
    """Nodes of one container are of one size: words behind that keep nothing, however large their blocks are."""
    count = rng.randrange(300, 500)
    _page, answer = asked(kind, count, tmp_path)
    groups = answer["lost_blocks"]["bytes"] + answer["doubtful"]["bytes"]
    assert groups >= 0.9 * count * BYTES


@pytest.mark.parametrize("kind", ["weak", "owned"])
def test_objects_that_are_destroyed(rng: random.Random, tmp_path: Path, kind: str) -> None:
    """Of objects without an owner only the memory is there, and the remedy is another than a limit."""
    count = rng.randrange(300, 500)
    page, _answer = asked(kind, count, tmp_path)
    (row,) = [row for row in page["findings"] if row["id"] == "holder"]
    is_weak = kind == "weak"
    assert (f"{count} x memory of destroyed C++ objects of class Job" in row["text"]) == is_weak, row["text"]
    assert (f"{count} x C++ object of class Job" in row["text"]) != is_weak
    assert ("std::weak_ptr" in row["advice"]) == is_weak


@pytest.mark.parametrize("release", since("3.6"))
def test_keys_that_were_freed(release: str, rng: random.Random, tmp_path: Path) -> None:
    """Freed keys of dicts lead to nothing that the last dicts had."""
    count = rng.randrange(1000, 3000)
    with running(release_program(release, "freed_keys", count), tmp_path) as target:
        rows = ask("unreachable", str(target.pid))["rows"]
    assert sum(row["bytes"] for row in rows) >= count * 1000, rows


def test_texts_where_objects_were(rng: random.Random, tmp_path: Path) -> None:
    """A text that ends like the object that was there is its type's in all answers."""
    with running(release_program("3.12", "documented", rng.randrange(300, 600)), tmp_path) as target:
        with heap_of(str(target.pid)) as heap:
            graph = heap.references.graph
            buffers = [row for row in graph.nodes_of(range(graph.blocks_end)) if row.kind == "buffer"]
            looks = heap.python.objects.objects_in([(row.address, row.size) for row in buffers])
            meant = [row for row, look in zip(buffers, looks) if look is not None and look.type == "__main__.Past"]
            said = [at(heap, row.address) for row in rng.sample(meant, min(20, len(meant)))]
    assert len(said) == 20
    assert {(answer.object, answer.owner and answer.owner.type) for answer in said} == {(None, "type")}
