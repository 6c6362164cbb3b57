"""Programs with another malloc than glibc's: it is named, glibc's arenas are empty, and the sums of the address
space agree.

They are checked against the allocator's own report, the program's table of its blocks, and the kernel's smaps.
"""

from __future__ import annotations

import random
import shutil
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support import kernel, programs
from support.ledger_lines import check_families, line_of, roots, virtual_size
from support.other_allocators import FUNCTIONS, by_name, compiled, library
from support.programs import FORMS, Running, ask, running

from gdbheap.allocators.recognised import find_other
from gdbheap.targets.elf import LoadedObject
from gdbheap.targets.mappings import Mapping, Mappings
from gdbheap.targets.target import Target

pytestmark = pytest.mark.cases(2)

MUSL = ("dynamic", "static", "static, stripped")


def holder(rng: random.Random, directory: Path, executable: Path | None = None) -> list[str]:
    """Return the command that runs holder.c; its table is ``directory``/table."""
    program = executable or programs.build("holder")
    return [str(program), str(rng.getrandbits(30)), str(rng.randrange(5000, 20000)), str(directory / "table")]


def table(directory: Path) -> list[tuple[int, int]]:
    """Return (pointer, requested) of every block that the program holds."""
    return list(struct.iter_unpack("<QQ", (directory / "table").read_bytes()))


def told(target: Running, what: str) -> int:
    """Return a figure of the allocator's own report."""
    (found,) = [line.split()[1] for line in target.stderr.splitlines() if line.split()[0] == what]
    return int(found)


def held_pages(directory: Path) -> int:
    """Return the bytes of the pages with the large blocks; the program wrote all of them.

    Blocks of less than a page may be in a program's file: musl uses the rest of the last page of its data.
    """
    large = [(start, size) for start, size in table(directory) if size > kernel.PAGE]
    pages = {page for start, size in large for page in range(start >> 12, ((start + size - 1) >> 12) + 1)}
    return len(pages) * kernel.PAGE


def private_memory(pid: int) -> tuple[int, int]:
    """Return (size, Rss) of all private, writable memory without a file, by smaps: no allocator has more."""
    sizes, inside = [0, 0], False
    for line in Path(f"/proc/{pid}/smaps").read_text().splitlines():
        words = line.split()
        if "-" in words[0]:
            inside = words[1].startswith("rw") and words[1].endswith("p") and words[4] == "0"
        elif inside and words[0] in ("Size:", "Rss:"):
            sizes[words[0] == "Rss:"] += int(words[1]) * 1024
    return sizes[0], sizes[1]


def check_ledger(target: Running, name: str, directory: Path) -> dict[str, Any]:
    """Compare the ledger of a process with the kernel's figures and the program's table; return the answer."""
    answer = ask("", str(target.pid))
    check_families(answer["ledger"])
    assert (roots(answer["ledger"], "resident"), roots(answer["ledger"], "swapped")) == kernel.rollup(target.pid)
    assert roots(answer["ledger"], "virtual") == virtual_size(target)
    line, (size, rss) = line_of(answer, f"other.{name}"), private_memory(target.pid)
    assert line["parent"] == "other" and line["name"].endswith("and other anonymous memory")
    assert held_pages(directory) <= line["resident"] <= rss and line["virtual"] <= size
    return answer


def holds_nothing(arena: dict[str, Any]) -> bool:
    """Return whether every figure of an arena is zero or of another allocator's kind, and it has no heap."""
    figures = {value for key, value in arena.items() if key != "address" and isinstance(value, int)}
    return figures == {0} and not arena["heaps"]


def check_empty(target: str, name: str) -> None:
    """Check that the answers about glibc's malloc are empty, name the actual malloc, and have the status of a
    complete answer."""
    arenas, holes, check = ask("arenas", target), ask("holes", target, "--min=1"), ask("check", target)
    assert len(arenas["rows"]) == 1
    assert holds_nothing(arenas["rows"][0]) and arenas["rows"][0]["allocator"] == "glibc"
    assert arenas["mmapped_chunks"] == {"count": 0, "bytes": 0}
    assert [hole for hole in holes["rows"] if hole["allocator"] == "glibc"] == []
    assert check["ok"] and check["chunks"] == 0
    for answer in (arenas, holes, check):
        assert any(f"malloc here is {name}'s" in warning for warning in answer["warnings"]), answer["warnings"]


def facts(target: str) -> dict[str, dict[str, Any]]:
    """Return the facts of ``heap info`` by name."""
    return {fact["fact"]: fact for fact in ask("info", target)["rows"]}


@by_name
def test_preloaded(name: str, rng: random.Random, tmp_path: Path) -> None:
    """Check that a preloaded allocator's memory has its own line with the mapped bytes that it reports, and that
    glibc's arenas are empty."""
    with running(holder(rng, tmp_path), tmp_path, {"LD_PRELOAD": library(name)}) as target:
        answer = check_ledger(target, name, tmp_path)
        line = line_of(answer, f"other.{name}")
        assert line["virtual"] >= told(target, "mapped")
        assert line_of(answer, "glibc")["virtual"] == 0
        assert [finding["id"] for finding in answer["findings"]] == ["other-allocator"]
        assert answer["findings"][0]["bytes"] == line["resident"]
        check_empty(str(target.pid), name)
        fact = facts(str(target.pid))["other allocator"]
        assert fact["value"] == name and FUNCTIONS[name] in fact["source"] and "empty" in fact["confirmed"]


@by_name
@pytest.mark.parametrize("form", FORMS)
def test_blocks_are_in_it(form: str, name: str, rng: random.Random, tmp_path: Path) -> None:
    """Check that ``heap at`` names that memory for a block, and no block of glibc's; also in cores."""
    with running(holder(rng, tmp_path), tmp_path, {"LD_PRELOAD": library(name)}) as target:
        where = target.as_form(form)
        for pointer, _ in rng.sample(table(tmp_path), 5):
            answer = ask("at", where, hex(pointer))
            assert answer["block"] is None and answer["mapping"]["whose"] == f"{name} and other anonymous memory"
    if form != programs.PROCESS:
        answer = ask("", where)
        check_families(answer["ledger"])
        assert line_of(answer, f"other.{name}")["virtual"] >= told(target, "mapped")
        check_empty(where, name)


def test_under_another_name(rng: random.Random, tmp_path: Path) -> None:
    """Check that a library with another name is recognised by its functions."""
    copy = shutil.copy(library("tcmalloc"), tmp_path / "libfast.so")
    with running(holder(rng, tmp_path), tmp_path, {"LD_PRELOAD": str(copy)}) as target:
        check_ledger(target, "tcmalloc", tmp_path)
        check_empty(str(target.pid), "tcmalloc")
        assert "libfast.so, it has tc_malloc" in facts(str(target.pid))["other allocator"]["source"]


def test_beside_glibcs(rng: random.Random, tmp_path: Path) -> None:
    """Check a Rust program's jemalloc, which has prefixed names and leaves malloc() to glibc: both are reported."""
    source, executable = tmp_path / "prefixed.c", tmp_path / "holder"
    source.write_text("void _rjem_mallocx(void) {}\n")
    compiled("-O1", programs.SOURCES / "holder.c", source, "-o", executable)
    with running(holder(rng, tmp_path, executable), tmp_path) as target:
        answer, arenas = ask("", str(target.pid)), ask("arenas", str(target.pid))
        fact = facts(str(target.pid))["other allocator"]
        pointer, size = table(tmp_path)[0]
        block = ask("at", str(target.pid), hex(pointer))["block"]
    check_families(answer["ledger"])
    assert line_of(answer, "other.jemalloc")["parent"] == "other" and line_of(answer, "glibc.used")["virtual"] > 0
    assert any("the process also contains jemalloc" in warning for warning in arenas["warnings"])
    assert fact["confirmed"] is None and "_rjem_mallocx" in fact["source"]
    assert block["allocator"] == "glibc" and block["address"] == pointer and block["size"] >= size


def test_what_the_kernel_names() -> None:
    """Check that mappings that the kernel names for the allocator are its own and no others; without names, all that
    may be."""

    def mapping(page: int, perms: str, path: str) -> Mapping:
        return Mapping(page << 12, (page + 1) << 12, perms, 0, "00:00", 0, path)

    plain, heap = mapping(10, "rw-p", ""), mapping(12, "rw-p", "[heap]")
    others = [mapping(14, "---p", ""), mapping(16, "rw-s", ""), mapping(18, "r--p", "[vvar]")]
    others += [mapping(20, "rw-p", "/x"), mapping(22, "rw-p", "[anon:stack_and_tls]")]
    named = mapping(24, "rw-p", "[anon:jemalloc_pg]")
    loaded = LoadedObject("/opt/libjemalloc.so.2", 0x1000, 0, None, [mapping(1, "r-xp", "/opt/libjemalloc.so.2")], [])
    for own in ([plain, heap], [named]):
        target = Target("process", mappings=Mappings([plain, heap, *others, *own[:1]]), objects=[loaded])
        found = find_other(target, True)
        assert found is not None and found.id == "jemalloc" and found.named == (own == [named])
        assert [mapping for mapping in (plain, heap, *others, named) if found.owns(mapping)] == own
        assert ("other anonymous memory" in found.title) == (own != [named])


def test_an_allocator_that_nobody_knows(rng: random.Random, tmp_path: Path) -> None:
    """Check that a program with its own malloc is named by its file."""
    with running(holder(rng, tmp_path, programs.build("own_malloc")), tmp_path) as target:
        check_ledger(target, "allocator", tmp_path)
        check_empty(str(target.pid), "own_malloc")


@by_name
def test_python_on_another_malloc(name: str, rng: random.Random, tmp_path: Path) -> None:
    """Check that pymalloc's arenas are its own with any malloc below; its objects are counted, and missing ones are
    reported."""
    command = programs.python_program("stripped", "pools", rng.getrandbits(32), 60_000)
    with running(command, tmp_path, {"LD_PRELOAD": library(name)}) as target:
        answer, pools, objects = (ask(noun, str(target.pid)) for noun in ("", "pools", "pyobjects"))
        check_families(answer["ledger"])
        assert roots(answer["ledger"], "resident") == kernel.rollup(target.pid)[0]
        check_empty(str(target.pid), name)
    assert line_of(answer, "pymalloc")["virtual"] == pools["arenas"] * pools["arena_size"]
    assert line_of(answer, "pymalloc.used")["virtual"] == sum(row["used_count"] * row["size"] for row in pools["rows"])
    assert objects["total"]["count"] > 1000
    assert any(f"gdbheap cannot list {name}'s blocks" in warning for warning in objects["warnings"])


@pytest.mark.parametrize("name", ["idle", "recorder"])
def test_glibc_alone_is_not_another(name: str, rng: random.Random, tmp_path: Path) -> None:
    """Check that without another allocator there is no line and no fact about one."""
    arguments = (1, rng.getrandbits(30), 1000, 100, 20_000, 0, tmp_path / "table") if name == "recorder" else ()
    with running(programs.c_program(name, *arguments), tmp_path) as target:
        answer = ask("", str(target.pid))
        assert not [line for line in answer["ledger"] if line["parent"] == "other"]
        assert "other allocator" not in facts(str(target.pid))


def test_malloc_never_called(rng: random.Random, tmp_path: Path) -> None:
    """Check glibc's arena before its first use: zeros, at the address that its bins have in another process."""
    with running(programs.c_program("idle"), tmp_path) as target:
        answer, idle = ask("arenas", str(target.pid)), facts(str(target.pid))
        idle_libc = libc_base(target.pid)
        core = ask("arenas", target.as_form(programs.KERNEL_CORE))
    with running(holder(rng, tmp_path), tmp_path) as target:
        busy, busy_libc = facts(str(target.pid)), libc_base(target.pid)
    assert answer["rows"] == core["rows"] and len(answer["rows"]) == 1
    assert holds_nothing(answer["rows"][0])
    assert any("malloc is empty" in warning for warning in answer["warnings"])
    for fact in ("main_arena", "mp_"):
        assert int(idle[fact]["value"], 16) - idle_libc == int(busy[fact]["value"], 16) - busy_libc
    assert idle["malloc_state"]["value"] == busy["malloc_state"]["value"]


def libc_base(pid: int) -> int:
    """Return the load address of libc."""
    return min(mapped.start for mapped in kernel.maps(pid) if "libc.so" in mapped.path)


@pytest.fixture(scope="module", params=MUSL)
def musl_program(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return holder.c built with musl."""
    executable: Path = tmp_path_factory.mktemp("musl") / "holder"
    flags = ["-static"] if request.param.startswith("static") else []
    compiled("-O1", *flags, programs.SOURCES / "holder.c", "-o", executable, compiler="musl-gcc")
    if "stripped" in request.param:
        subprocess.run(["strip", str(executable)], check=True)
    return executable


@pytest.fixture
def musl(musl_program: Path, rng: random.Random, tmp_path: Path) -> Iterator[Running]:
    """Yield the program while it waits."""
    with running(holder(rng, tmp_path, musl_program), tmp_path) as target:
        yield target


def test_musl(musl: Running, tmp_path: Path) -> None:
    """Check that musl's malloc is walked, and that commands about glibc's alone are refused in one line."""
    pid, blocks = str(musl.pid), table(tmp_path)
    done = programs.gdbheap("trim", pid, "--dry-run")
    assert done.returncode == 5 and done.stdout == "", done.stdout
    assert len(done.stderr.splitlines()) == 1 and "malloc here is musl's" in done.stderr
    answer = ask("", pid)
    check_families(answer["ledger"])
    assert sum(size for _pointer, size in blocks) <= line_of(answer, "mallocng.used")["virtual"]
    assert answer["warnings"] == [] and ask("check", pid)["ok"]
    pointer, size = max(blocks, key=lambda block: block[1])
    block = ask("at", pid, hex(pointer))["block"]
    assert (block["allocator"], block["address"]) == ("mallocng", pointer) and block["size"] >= size


def test_musl_in_a_core(musl: Running) -> None:
    """Check the answers about musl's malloc in a core."""
    classes = ask("arenas", str(musl.pid))["classes"]
    assert classes and ask("arenas", musl.as_form(programs.KERNEL_CORE))["classes"] == classes
