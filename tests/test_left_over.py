"""Words after a container's last item are no references, and memory that only a std::weak_ptr keeps is no object."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from elftools.elf.elffile import ELFFile
from elftools.elf.gnuversions import GNUVerDefSection, GNUVerNeedSection
from support.library import heap_of
from support.programs import RELEASE, SOURCES, ask, release_program, running, since

from gdbheap.answers.at import at
from gdbheap.errors import Fault
from gdbheap.graph.linker_tables import linker_tables

BYTES = 40_000


def asked(kind: str, count: int, folder: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the first page and the unreachable blocks of a program with COUNT objects of that KIND."""
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("no C++ compiler")
    program = folder / "left_over"
    subprocess.run([compiler, "-std=c++14", "-O1", str(SOURCES / "left_over.cc"), "-o", str(program)], check=True)
    with running([str(program), kind, str(count)], folder) as target:
        return ask("", str(target.pid)), ask("unreachable", str(target.pid))


def test_items_that_were_taken(rng: random.Random, tmp_path: Path) -> None:
    """Check that an empty vector holds nothing, even if its buffer still contains old items."""
    count = rng.randrange(300, 500)
    page, answer = asked("vector", count, tmp_path)
    groups = answer["lost_blocks"]["bytes"] + answer["doubtful"]["bytes"]
    assert groups >= (count - 2) * BYTES
    (row,) = [row for row in page["findings"] if row["id"] == "holder"]
    assert "held by" not in row["text"] and "in use, or lost" in row["text"] and "limit" not in row["advice"]


def test_nodes_that_a_deque_freed(rng: random.Random, tmp_path: Path) -> None:
    """Check that blocks in the place of freed nodes are lost, although the deque's array still has their addresses."""
    count = rng.randrange(20_000, 40_000)
    page, answer = asked("deque", count, tmp_path)
    assert answer["lost_blocks"]["bytes"] >= 0.99 * count * 512, answer["lost_blocks"]
    (finding,) = [row for row in page["findings"] if row["id"] == "lost-blocks"]
    assert finding["bytes"] >= 0.99 * count * 512
    assert not any("'queue' in" in row["path"] for row in page["holders"])


def test_items_that_are_there(rng: random.Random, tmp_path: Path) -> None:
    """Check that a vector holds its items, in a buffer of which a part is free."""
    page, answer = asked("kept", rng.randrange(300, 500), tmp_path)
    assert answer["lost_blocks"]["bytes"] + answer["doubtful"]["bytes"] < BYTES
    assert "held by 'pending' in" in str([row["text"] for row in page["findings"]])


@pytest.mark.parametrize("is_aligned", [False, True])
def test_tables_of_the_dynamic_linker(is_aligned: bool, rng: random.Random, tmp_path: Path) -> None:
    """Check that words in the unfilled part of a table of mappings keep nothing, and that the table itself is not
    lost; an aligned table begins where its block does, as it is with one count of eight or fewer."""
    count = 164 if is_aligned else rng.randrange(100, 200)
    _page, answer = asked("linked", count, tmp_path)
    lost = [row for row in answer["rows"] if row["group"] == "lost_blocks"]
    assert sum(row["bytes"] for row in lost) >= 0.9 * count * BYTES
    assert sum(row["count"] for row in answer["rows"]) <= count


@pytest.mark.parametrize("kind", ["tail", "end"])
def test_what_malloc_added_to_nodes(kind: str, rng: random.Random, tmp_path: Path) -> None:
    """Check that nodes of one container have one size: words after it keep nothing, however large their blocks are."""
    count = rng.randrange(300, 500)
    _page, answer = asked(kind, count, tmp_path)
    groups = answer["lost_blocks"]["bytes"] + answer["doubtful"]["bytes"]
    assert groups >= 0.9 * count * BYTES


@pytest.mark.parametrize("kind", ["weak", "owned"])
def test_objects_that_are_destroyed(rng: random.Random, tmp_path: Path, kind: str) -> None:
    """Check that destroyed objects without an owner count only as memory, with another remedy than a limit."""
    count = rng.randrange(300, 500)
    page, _answer = asked(kind, count, tmp_path)
    (row,) = [row for row in page["findings"] if row["id"] == "holder"]
    is_weak = kind == "weak"
    assert (f"{count} x memory of destroyed C++ objects of class Job" in row["text"]) == is_weak, row["text"]
    assert (f"{count} x C++ object of class Job" in row["text"]) != is_weak
    assert ("std::weak_ptr" in row["advice"]) == is_weak


@pytest.mark.parametrize("release", since("3.6"))
def test_keys_that_were_freed(release: str, rng: random.Random, tmp_path: Path) -> None:
    """Check that freed tables of keys do not refer to the values of the last dicts that used them."""
    count = rng.randrange(1000, 3000)
    with running(release_program(release, "freed_keys", count), tmp_path) as target:
        rows = ask("unreachable", str(target.pid))["rows"]
    assert sum(row["bytes"] for row in rows) >= count * 1000, rows


def test_texts_where_objects_were(rng: random.Random, tmp_path: Path) -> None:
    """Check that a text that ends like an earlier object there has the type of a text in all answers."""
    with running(release_program("3.12", "documented", rng.randrange(300, 600)), tmp_path) as target:
        with heap_of(str(target.pid)) as heap:
            graph = heap.references.graph
            buffers = [row for row in graph.nodes_of(range(graph.blocks_end)) if row.kind == "buffer"]
            looks = heap.python.objects.objects_in([(row.address, row.size) for row in buffers])
            meant = [row for row, look in zip(buffers, looks) if look is not None and look.type == "__main__.Past"]
            said = [at(heap, row.address) for row in rng.sample(meant, min(20, len(meant)))]
    assert len(said) == 20
    assert {(answer.object, answer.owner and answer.owner.type) for answer in said} == {(None, "type")}


def versions_of(path: str) -> set[str]:
    """Return the names of the versions that an object defines or needs, without the name of the object itself."""
    found: set[str] = set()
    with open(path, "rb") as stream:
        for section in ELFFile(stream).iter_sections():
            if isinstance(section, GNUVerNeedSection):
                found |= {row.name for _file, rows in section.iter_versions() for row in rows}
            elif isinstance(section, GNUVerDefSection):
                # The first version is the object itself (VER_FLG_BASE).
                found |= {next(rows).name for version, rows in section.iter_versions() if not version["vd_flags"] & 1}
    return found


def test_hashes_of_versions(tmp_path: Path) -> None:
    """Check that the linker's table of versions is found for each loaded object: the hashes in it are no references."""
    with running(release_program(RELEASE, "extensions", 1, 1), tmp_path) as target, heap_of(str(target.pid)) as heap:
        space, found = heap.target.space, set()
        for table in linker_tables(heap.target):
            names: set[str] = set()
            # Other tables have no names.
            with suppress(Fault):
                for row in range(table, table + 24 * 100, 24):
                    if name := space.word(row):
                        names.add(space.cstring(name, 256).decode("latin-1"))
                    elif names:
                        break
            found.add(frozenset(names))
        paths = [loaded.path for loaded in heap.target.objects if os.path.exists(loaded.path)]
        wanted = {frozenset(versions) for path in paths if (versions := versions_of(path))}
    assert len(wanted) > 3 and wanted <= found, (wanted - found, found)
