"""The ledger of ``heap``: children add up to parents, roots to the kernel's sums, and nearly all memory is
explained."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from support import kernel
from support.ledger_lines import check_families, line_of, mapped, roots, virtual_size
from support.programs import GCORE, KERNEL_CORE, ask, c_program, python_program, running

pytestmark = pytest.mark.cases(3)


def plain(rng: random.Random, directory: Path) -> list[str]:
    """Return a program with one thread, main arena and mmapped chunks."""
    return c_program("recorder", 1, rng.getrandbits(30), 50_000, 5000, 300_000, 0, directory / "table")


def threaded(rng: random.Random, directory: Path) -> list[str]:
    """Return a program with eight threads with stacks and arenas."""
    return c_program("recorder", 8, rng.getrandbits(30), 20_000, 2000, 300_000, 0, directory / "table")


def scattered(rng: random.Random, directory: Path) -> list[str]:
    """Return a program with a main arena in pieces."""
    return c_program("recorder", 3, rng.getrandbits(30), 20_000, 2000, 300_000, 2, directory / "table")


def huge_pages(rng: random.Random, directory: Path) -> list[str]:
    """Return a program with arenas in huge pages of hugetlbfs, if there are any."""
    program = c_program("recorder", 5, rng.getrandbits(30), 20_000, 2000, 300_000, 0, directory / "table")
    return ["env", "GLIBC_TUNABLES=glibc.malloc.hugetlb=2", *program]


def unstripped_python(rng: random.Random, directory: Path) -> list[str]:
    """Return a CPython with symbols, with full and empty pools."""
    return python_program("unstripped", "pools", rng.getrandbits(32), 60_000)


def stripped_python(rng: random.Random, directory: Path) -> list[str]:
    """Return a CPython without symbols."""
    return python_program("stripped", "pools", rng.getrandbits(32), 60_000)


def fragmented_python(rng: random.Random, directory: Path) -> list[str]:
    """Return a CPython that leaves holes."""
    return python_program("stripped", "fragmented", rng.getrandbits(32), 300)


def leaving_holes(rng: random.Random, directory: Path) -> list[str]:
    """Return a program with free chunks whose inner pages were given back."""
    return c_program("holes", rng.getrandbits(30), 120, 300_000, 0, 2, directory / "table")


PROGRAMS = (
    plain,
    threaded,
    scattered,
    mapped,
    huge_pages,
    leaving_holes,
    unstripped_python,
    stripped_python,
    fragmented_python,
)
by_program = pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)


def start(program: Any, rng: random.Random, directory: Path) -> Any:
    """Start one of PROGRAMS."""
    return running(program(rng, directory), directory)


def private_data(core: Path, mappings: list[kernel.Mapped]) -> int:
    """Return the resident bytes by a core: the data, not the holes, of private memory that was dumped whole.

    The kernel writes shared memory, the vdso, and the first page of each ELF file whether they were resident or not.
    """
    known = {mapped.start for mapped in mappings if mapped.perms.endswith("p") and mapped.path != "[vdso]"}
    whole = [s for s in kernel.segments(core) if s.file_size == s.size and s.start in known]
    return sum(kernel.data_bytes(core, segment.offset, segment.file_size) for segment in whole)


@by_program
def test_ledger_of_a_process(program: Any, rng: random.Random, tmp_path: Path) -> None:
    """Check that roots equal smaps_rollup to the page and maps to the byte, and that under 1 % of RSS is
    unexplained."""
    with start(program, rng, tmp_path) as target:
        before = kernel.rollup(target.pid)
        answer = ask("", str(target.pid))
        after, virtual = kernel.rollup(target.pid), virtual_size(target)
    lines = answer["ledger"]
    check_families(lines)
    assert before == after, "the target moved"
    assert (answer["rss"]["bytes"], answer["rss"]["swapped"]) == before
    assert (roots(lines, "resident"), roots(lines, "swapped")) == before
    assert roots(lines, "virtual") == virtual
    assert (line_of(answer, "unexplained")["resident"] or 0) * 100 < before[0]


@by_program
def test_ledger_of_a_kernel_core(program: Any, rng: random.Random, tmp_path: Path) -> None:
    """Check that resident bytes are the data of the file, and that the heaps' lines are those of the process that
    died."""
    with start(program, rng, tmp_path) as target:
        live, mappings = ask("", str(target.pid)), kernel.maps(target.pid)
        core = Path(target.as_form(KERNEL_CORE))
    answer = ask("", str(core))
    check_families(answer["ledger"])
    virtual, present = sum(mapped.end - mapped.start for mapped in mappings), private_data(core, mappings)
    assert answer["rss"]["bytes"] == present
    assert (roots(answer["ledger"], "resident"), roots(answer["ledger"], "virtual")) == (present, virtual)
    assert (line_of(answer, "unexplained")["resident"] or 0) * 100 < present
    assert heaps(answer) == heaps(live)


@by_program
def test_ledger_of_gdbs_core(program: Any, rng: random.Random, tmp_path: Path) -> None:
    """Check that residency is unknown, and null, and that the bytes of malloc and pymalloc are the same."""
    with start(program, rng, tmp_path) as target:
        live = ask("", str(target.pid))
        answer = ask("", target.as_form(GCORE))
    check_families(answer["ledger"])
    assert answer["rss"]["bytes"] is None
    assert all(line["resident"] is None for line in answer["ledger"])
    assert heaps(answer, ("virtual",)) == heaps(live, ("virtual",))


def heaps(answer: dict[str, Any], columns: tuple[str, ...] = ("virtual", "resident")) -> dict[str, list[Any]]:
    """Return the allocators' lines, which are private memory and so the same in a process and its core."""
    lines = [line for line in answer["ledger"] if line["id"].split(".")[0] in ("glibc", "pymalloc", "stacks")]
    return {line["id"]: [line[column] for column in columns] for line in lines}


def test_ledger_agrees_with_arenas_and_pools(rng: random.Random, tmp_path: Path) -> None:
    """Check the lines of malloc and pymalloc against ``heap arenas`` and ``heap pools``."""
    with start(stripped_python, rng, tmp_path) as target:
        answer, arenas, pools = (ask(noun, str(target.pid)) for noun in ("", "arenas", "pools"))
    assert line_of(answer, "pymalloc")["virtual"] == pools["arenas"] * pools["arena_size"]
    used = sum(row["used_count"] * row["size"] for row in pools["rows"])
    assert line_of(answer, "pymalloc.used")["virtual"] == used
    assert line_of(answer, "glibc.top")["virtual"] == sum(row["top"] for row in arenas["rows"])
    assert line_of(answer, "glibc.mmapped")["virtual"] == arenas["mmapped_chunks"]["bytes"]


def test_at_names_the_kernels_mappings(rng: random.Random, tmp_path: Path) -> None:
    """Check that the kernel's own mappings in every process have their names, not "other"."""
    with start(plain, rng, tmp_path) as target:
        own = [mapped for mapped in kernel.maps(target.pid) if mapped.path.startswith("[v")]
        owners = {mapped.path: ask("at", str(target.pid), hex(mapped.start))["mapping"]["whose"] for mapped in own}
    assert owners and owners == {name: f"the kernel's {name.strip('[]')}" for name in owners}


ZERO, HUGE, CHILD_WRITES, PARENT_WRITES = 1, 2, 4, 8


@pytest.mark.parametrize("where", [0, ZERO, HUGE, ZERO + HUGE, CHILD_WRITES, PARENT_WRITES, 15])
def test_pages_in_every_state(where: int, rng: random.Random, tmp_path: Path) -> None:
    """Check zero pages, huge pages and pages shared after fork(): the roots are the kernel's sums, entry by entry."""
    command = c_program("held", rng.getrandbits(30), 800, 200_000, where)
    with running(command, tmp_path) as target:
        before = kernel.rollup(target.pid)
        answer = ask("", str(target.pid))
        found = [page for m in kernel.maps(target.pid) for page in kernel.pages(target.pid, m.start, m.end)]
        virtual, after = virtual_size(target), kernel.rollup(target.pid)
        huge = sum(kernel.in_rollup(target.pid, kind) for kind in ("AnonHugePages", "FilePmdMapped"))
    lines = answer["ledger"]
    check_families(lines)
    assert before == after, "the target moved"
    assert (roots(lines, "resident"), roots(lines, "swapped")) == before
    assert before[0] == kernel.PAGE * sum(page.is_there for page in found)
    assert roots(lines, "zero") == kernel.PAGE * sum(page.is_zero for page in found)
    assert roots(lines, "huge") == huge
    assert roots(lines, "pages") == roots(lines, "virtual") == virtual
    assert line_of(answer, "unexplained")["resident"] == 0
    assert where & ZERO == 0 or roots(lines, "zero") > 1 << 20


@by_program
def test_ledger_of_a_process_in_swap(program: Any, rng: random.Random, tmp_path: Path) -> None:
    """Check that pages in swap are counted as the kernel counts them, in the lines of their contents."""
    with start(program, rng, tmp_path) as target:
        kernel.page_out(target.pid, rng)
        before = kernel.rollup(target.pid)
        answer = ask("", str(target.pid))
    lines = answer["ledger"]
    check_families(lines)
    assert before[1] > 0 and (answer["rss"]["bytes"], answer["rss"]["swapped"]) == before
    assert (roots(lines, "resident"), roots(lines, "swapped")) == before
    assert line_of(answer, "unexplained")["swapped"] == 0


@by_program
def test_ledger_in_detail(program: Any, rng: random.Random, tmp_path: Path) -> None:
    """Check that the parts of the parts add up, that the rest of the ledger is the same, and that each arena has its
    own lines."""
    with start(program, rng, tmp_path) as target:
        answer, detailed = ask("", str(target.pid)), ask("", str(target.pid), "--detail")
        arenas = ask("arenas", str(target.pid))["rows"]
        mapped = kernel.maps(target.pid)
    check_families(detailed["ledger"])
    ids = {line["id"] for line in answer["ledger"]}
    assert [line for line in detailed["ledger"] if line["id"] in ids] == sorted_as(answer["ledger"], detailed["ledger"])
    by_id = {line["id"]: line["virtual"] for line in detailed["ledger"]}
    for row in arenas:
        free = row["free"] + row["fast"] + row["tcache"]
        assert by_id.get(f"glibc.top.{row['index']}", 0) == row["top"]
        assert by_id.get(f"glibc.free.{row['index']}", 0) == free
    code = sum(m.end - m.start for m in mapped if m.perms == "r-xp" and m.path.startswith("/"))
    assert by_id["file.text"] == code


def sorted_as(lines: list[dict[str, Any]], order: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return ``lines`` in the order of their ids in ``order``."""
    places = [line["id"] for line in order]
    return sorted(lines, key=lambda line: places.index(line["id"]))


@pytest.mark.parametrize("program", [leaving_holes, threaded, fragmented_python], ids=lambda program: program.__name__)
def test_free_lines_page_for_page(program: Any, rng: random.Random, tmp_path: Path) -> None:
    """Check that a whole page is under "free" if and only if each byte of it is, by the listed chunks and pagemap's
    entries."""
    with start(program, rng, tmp_path) as target:
        lines = {line["id"]: line for line in ask("", str(target.pid))["ledger"]}
        holes = ask("holes", str(target.pid), "--min=16")["rows"]
        spans = [hole_span(hole) for hole in holes if hole["allocator"] == "glibc"]
        found = [page for start, end in spans for page in kernel.pages(target.pid, start, end)]
    whole = sum(end - start for start, end in spans)
    assert lines["glibc.free"]["pages"] == whole
    assert lines["glibc.free"]["whole"] == kernel.PAGE * sum(page.is_there for page in found)


@pytest.mark.parametrize("program", [leaving_holes, threaded, fragmented_python], ids=lambda program: program.__name__)
def test_each_byte_has_an_owner(program: Any, rng: random.Random, tmp_path: Path) -> None:
    """Check that the resident bytes of a line are those of its chunks, by their list and pagemap's entries."""
    with start(program, rng, tmp_path) as target:
        lines = {line["id"]: line for line in ask("", str(target.pid))["ledger"]}
        chunks = ask("chunks", str(target.pid), "--top=all")["rows"]
        there = present(target.pid, [(row["address"] - 16, row["address"] - 16 + row["size"]) for row in chunks])
    sums: Counter[str] = Counter()
    for row, resident in zip(chunks, there):
        sums[{"fast": "free", "tcache": "free"}.get(row["state"], row["state"])] += resident
    for state in ("used", "free", "top"):
        assert lines[f"glibc.{state}"]["resident"] == sums[state], state


def present(pid: int, spans: list[tuple[int, int]]) -> list[int]:
    """Return the resident bytes of each stretch."""
    low, high = min(start for start, _ in spans), max(end for _, end in spans)
    found = {
        mapping.start + kernel.PAGE * index
        for mapping in kernel.maps(pid)
        if mapping.end > low and mapping.start < high
        for index, page in enumerate(kernel.pages(pid, mapping.start, mapping.end))
        if page.is_there
    }

    def inside(start: int, end: int) -> int:
        pages = range(start // kernel.PAGE * kernel.PAGE, end, kernel.PAGE)
        return sum(min(end, page + kernel.PAGE) - max(start, page) for page in pages if page in found)

    return [inside(start, end) for start, end in spans]


def hole_span(hole: dict[str, Any]) -> tuple[int, int]:
    """Return the whole pages inside a hole, (start, end); a hole begins 16 bytes below its address."""
    first, end = hole["address"] - 16, hole["address"] - 16 + hole["size"]
    low, high = -(-first // kernel.PAGE) * kernel.PAGE, end // kernel.PAGE * kernel.PAGE
    return low, max(low, high)
