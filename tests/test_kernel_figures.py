"""Figures that the kernel or the allocator itself has too: huge pages, memory given back lazily, pages that reading
un-shared, spans after repacking, arenas that no thread uses; and names of memory that no malloc walks."""

from __future__ import annotations

import random
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support import kernel
from support.findings import FORBID, THP, finding
from support.other_sizes import others
from support.private_memory import private_in_smaps
from support.programs import SOURCES, ask, build, c_program, gdbheap, interpreter_of, running
from support.runtimes import needed, renamed
from support.tcmallocs import library

from gdbheap.host import tmpfs
from gdbheap.host.mounts import parse_mounts
from gdbheap.host.tmpfs import find_tmpfs_files
from gdbheap.processes.family import family
from gdbheap.report.text.style import Style
from gdbheap.report.words.processes import render

HUGE = 2 << 20
# tests/programs/repacked.c leaves one block in ONE_IN.
ONE_IN = 4
# Bytes of the kernel and the C library beside the mapping.
BATCHES = 1 << 20


def ids(answer: dict[str, Any]) -> list[str]:
    """Return the ids of the findings."""
    return [row["id"] for row in answer["findings"]]


def test_sparse_huge_pages(rng: random.Random, tmp_path: Path) -> None:
    """Check that the promised bytes are those that the same program saves without huge pages, if one page of each
    huge page is written. A mapping that is written to its end has no such finding, nor has one of zeros."""
    if not THP.exists() or "[never]" in THP.read_text():
        pytest.skip("this kernel makes no huge pages")
    command = c_program("huge_pages", rng.randrange(20, 40), "sparse")
    with running(command, tmp_path) as target:
        answer = ask("", str(target.pid))
        huge, before = kernel.in_rollup(target.pid, "AnonHugePages"), kernel.rollup(target.pid)[0]
        if not huge or all(line["huge"] is None for line in answer["ledger"]):
            pytest.skip("the kernel made no huge pages, or does not say which are huge")
    with running([sys.executable, "-c", FORBID, *command], tmp_path) as target:
        saved = before - kernel.rollup(target.pid)[0]
        assert "sparse-huge-pages" not in ids(ask("", str(target.pid)))
    found = finding(answer, "sparse-huge-pages")
    assert found["bytes"] == pytest.approx(saved, rel=0.02) and found["figures"]["huge"] == huge
    assert re.search(r"transparent huge pages: [\d.]+ MiB of [\d.]+ MiB contains only zeros", found["text"])
    assert "before the program touches its pages" in found["advice"] and "MADV_DONTNEED" in found["advice"]
    assert "MADV_NOHUGEPAGE" in found["advice"] and "PR_SET_THP_DISABLE" in found["advice"]
    # The same bytes are in no other finding.
    assert sum(row["bytes"] for row in answer["findings"]) <= answer["rss"]["bytes"]
    with running(c_program("huge_pages", 20, rng.choice(["whole", "zeros"])), tmp_path) as target:
        assert "sparse-huge-pages" not in ids(ask("", str(target.pid)))


def test_given_back_lazily(rng: random.Random, tmp_path: Path) -> None:
    """Check that the finding has the bytes of the program's mapping that the kernel does not count as LazyFree."""
    count = rng.randrange(20, 40)
    with running(c_program("huge_pages", count, "lazy"), tmp_path) as target:
        before = kernel.in_rollup(target.pid, "LazyFree")
        answer = ask("", str(target.pid))
        after = kernel.in_rollup(target.pid, "LazyFree")
    if min(before, after) < count * HUGE // 2:
        pytest.skip("the kernel has reclaimed the freed memory, or does not count it")
    found, (least, most) = finding(answer, "mapped-memory"), sorted((before, after))
    # The kernel counts pages in batches; the C library has some pages of its own beside the mapping.
    assert -BATCHES <= found["bytes"] - (count * HUGE - most) <= most - least + BATCHES
    assert least - BATCHES <= found["figures"]["lazily_freed"] <= most + BATCHES


def test_forked_readers(rng: random.Random, tmp_path: Path) -> None:
    """Check two workers that read a table: at least 90 % of the bytes that the kernel counts as private to them are
    under a heading with reference counts, the types are named, and there is a remedy. The first page of a worker names
    this command.
    """
    command = [interpreter_of("stripped"), "-I", str(SOURCES / "readers.py"), str(rng.randrange(60_000, 80_000))]
    with running(command, tmp_path) as parent:
        workers = [int(pid) for pid in re.findall(r"^read (\d+)$", parent.stderr, re.MULTILINE)]
        page, above = gdbheap(str(workers[0])).stdout, gdbheap(str(parent.pid)).stdout
        answer = family([parent.pid, *workers], None)
        private = sum(map(private_in_smaps, workers))
    assert f"$ gdbheap {parent.pid} --children  # memory shared with {parent.pid}, from which it was forked" in page
    assert f"This process was forked from {parent.pid}. Each use of an object" in page
    assert f"$ gdbheap {parent.pid} --children  # with its 3 children" in above
    assert "This process was forked" not in above
    text = " ".join(render(answer, answer, 0, False, Style()).split())
    rows = [row.written for row in answer.rows if row.pid in workers and row.written is not None]
    counts = sum(row.recounted + row.counts_only for row in rows)
    assert len(rows) == 2 and counts >= 0.9 * private
    most = sorted(answer.types, key=lambda row: -row.recounted)[:3]
    assert {row.type for row in most} == {"str", "tuple", "float"}
    assert "reference counts that rose and fell again" in text and "gc.freeze() does not help" in text
    assert all(name in text for name in ("array.array", "numpy", "mmap"))


@pytest.mark.parametrize("size", [32, 48, 64, 80, 128, 256])
@pytest.mark.cases(2)
def test_repacked_spans(size: int, tmp_path: Path) -> None:
    """Check tcmalloc with its usual transfer caches: the promised bytes are those that repacking releases, within 15
    %."""
    command = c_program("repacked", size, (24 << 20) // size, ONE_IN)
    with running(command, tmp_path, {"LD_PRELOAD": library("tcmalloc_minimal")}) as target:
        (sizes,) = others(ask("sizes", str(target.pid), "--top=0"))
        before = kernel.rollup(target.pid)[0]
        target.go_on()
        freed = before - kernel.rollup(target.pid)[0]
    assert sizes["freed"] == pytest.approx(freed, rel=0.15)


@pytest.mark.parametrize("ended", [False, True])
def test_arenas_of_threads(ended: bool, rng: random.Random, tmp_path: Path) -> None:
    """Check a program that had one arena for each thread, each with its peak, unused since the threads ended.

    The finding names the measurement, and the variable of the block above the largest free chunk, but recommends no
    number of arenas.
    """
    threads, environment = rng.randrange(3, 6), {"GLIBC_TUNABLES": "glibc.malloc.arena_max=64"}
    command = c_program("peaks", threads, 20_000, int(ended))
    with running(command, tmp_path, environment) as target:
        found = finding(ask("", str(target.pid)), "free-chunks")
    figures = found["figures"]
    assert figures["arenas"] == threads and figures["unused_arenas"] == (threads if ended else 0)
    assert figures["unused"] == (figures["threads"] if ended else 0)
    assert ("any more" in found["text"]) == ended
    assert re.search(r"the block after the largest hole is held by '?(last|results)\b.* (in|of) peaks", found["text"])
    assert "gdbheap trace" in found["advice"] and not any("ARENA_MAX" in line for line in found["commands"])
    assert found["commands"][-1] == "gdbheap replay calls.log --what-if"


def test_sanitizer(rng: random.Random, tmp_path: Path) -> None:
    """Check that AddressSanitizer's memory has its name, and that the advice is about it."""
    program = tmp_path / "checked"
    source = str(SOURCES / "holder.c")
    done = subprocess.run(["gcc", "-fsanitize=address", "-pthread", source, "-o", str(program)], capture_output=True)
    if done.returncode:
        pytest.skip("no compiler with AddressSanitizer")
    with running([str(program), str(rng.getrandbits(30)), "2000", str(tmp_path / "table")], tmp_path) as target:
        answer = ask("", str(target.pid))
    assert "AddressSanitizer and other anonymous memory" in [line["name"] for line in answer["ledger"]]
    assert answer["summary"]["not_walked"]["name"] == "AddressSanitizer"
    assert "-fsanitize" in finding(answer, "other-allocator")["advice"]


def test_valgrind(rng: random.Random, tmp_path: Path) -> None:
    """Check a program under valgrind: valgrind's mappings have its name, and do not count as the program's own."""
    command = [needed("valgrind"), "--quiet", *c_program("holder", rng.getrandbits(30), 2000, tmp_path / "table")]
    with running(command, tmp_path) as target:
        answer = ask("", str(target.pid), "--max-stop=60")
    assert "valgrind and other anonymous memory" in [line["name"] for line in answer["ledger"]]
    assert "runtime-valgrind" in ids(answer) and "other-held" not in ids(answer)


def test_malloc_of_a_runtime(rng: random.Random, tmp_path: Path) -> None:
    """Check that a program with its own malloc() that is a runtime by its name is called so, with the runtime's
    advice."""
    shutil.copy(build("own_malloc"), tmp_path / "chrome")
    command = [str(tmp_path / "chrome"), str(rng.getrandbits(30)), "20000", str(tmp_path / "table")]
    with running(command, tmp_path) as target:
        answer = ask("", str(target.pid))
    found = finding(answer, "other-allocator")
    assert "PartitionAlloc" in found["text"] and "chrome://memory-internals" in found["advice"]


@pytest.mark.parametrize(("name", "client"), [("mariadbd", "mariadb"), ("mysqld", "mysql")])
def test_each_server_has_its_own_statements(name: str, client: str, rng: random.Random, tmp_path: Path) -> None:
    """Check that each server has its own client and statements: MariaDB has no memory table of MySQL's schema sys."""
    with running(renamed(name, rng, tmp_path), tmp_path) as target:
        (found,) = (row for row in ask("", str(target.pid))["findings"] if row["id"].startswith("runtime-"))
    assert found["commands"] and all(line.startswith(f"{client} ") for line in found["commands"])
    assert any("sys.memory" in line for line in found["commands"]) == (client == "mysql")


# A program in its own mount namespace: a tmpfs with files, a link and a mount point that lead elsewhere, and holes.
MOUNTED = """
set -e
mount -t tmpfs none "$1"
mkdir "$1/below" "$1/elsewhere" "$1/other"
head -c 3145728 /dev/zero > "$1/below/nested"
head -c 2097152 /dev/zero > "$1/new
line"
head -c 1000 /dev/zero > "$1/small"
truncate -s 100M "$1/holes"
ln -s "$2" "$1/link"
ln -s "$1/below/nested" "$1/again"
mount --bind "$2" "$1/elsewhere"
shift 2
exec "$@"
"""


def test_files_in_tmpfs(rng: random.Random, tmp_path: Path) -> None:
    """Check that files that the process does not map are named with their bytes, and that no file outside the tmpfs
    is."""
    mounted, outside = tmp_path / "mounted", tmp_path / "outside"
    mounted.mkdir()
    outside.mkdir()
    (outside / "large").write_bytes(bytes(4 << 20))
    if subprocess.run(["unshare", "-m", "mount", "-t", "tmpfs", "none", str(mounted)], capture_output=True).returncode:
        pytest.skip("no mount namespace may be made here")
    command = ["unshare", "-m", "sh", "-c", MOUNTED, "sh", str(mounted), str(outside)]
    with running([*command, *c_program("huge_pages", 1, "whole")], tmp_path) as target:
        files = find_tmpfs_files(str(target.pid), [])
        answer = ask("", str(target.pid))
    own = {file.file: (file.size, file.bytes) for file in files if file.file.startswith(f"{mounted}/")}
    assert own == {f"{mounted}/below/nested": (3 << 20, 3 << 20), f"{mounted}/new\nline": (2 << 20, 2 << 20)}
    assert not [file for file in files if "large" in file.file]
    if answer["control_group"] is None:
        pytest.skip("no control group counts its memory")
    assert set(own) <= {row["file"] for row in answer["control_group"]["tmpfs_files"]}


def test_tmpfs_behind_a_server() -> None:
    """Check that a tmpfs below a file system whose server may never answer is left alone, and that others are not."""
    table = (
        b"1 0 0:5 / / rw - overlay overlay rw\n2 1 0:6 / /dev rw shared:3 - tmpfs dev rw\n"
        b"3 1 0:7 / /srv\\040x rw - fuse.evil x rw\n4 3 0:8 / /srv\\040x/tmp rw - tmpfs x rw\n"
        b"5 2 0:9 / /dev/shm rw - tmpfs x rw\n6 1 0:9 / /also rw - tmpfs x rw\n"
    )
    found = tmpfs._of_tmpfs(list(parse_mounts(table)), {})
    assert [mount.point for mount in found] == ["/dev", "/dev/shm"]


def test_huge_pages_of_a_mapping(rng: random.Random, tmp_path: Path) -> None:
    """Check that 'at' and 'map' state the bytes of a mapping in huge pages as smaps does, and nothing if there are
    none."""
    with running(c_program("huge_pages", rng.randrange(8, 20), "whole"), tmp_path) as target:
        rows = re.findall(
            r"^([0-9a-f]+)-\S+ .*?^AnonHugePages: +(\d+) kB", Path(f"/proc/{target.pid}/smaps").read_text(), re.M | re.S
        )
        huge = {int(start, 16): int(size) << 10 for start, size in rows if int(size)}
        if not huge:
            pytest.skip("the kernel makes no huge pages here")
        ((start, size),) = huge.items()
        at, text = ask("at", str(target.pid), f"{start:#x}"), gdbheap("at", str(target.pid), f"{start:#x}").stdout
        groups, drawn = ask("map", str(target.pid))["rows"], gdbheap("map", str(target.pid)).stdout
        other = next(group["start"] for group in groups if not group["start"] <= start < group["end"])
        plain = ask("at", str(target.pid), f"{other:#x}")
    assert at["mapping"]["huge"] == size and f"{size >> 20}.0 MiB of it in transparent huge pages" in text
    assert plain["mapping"]["huge"] == 0
    if all(group["huge"] is None for group in groups):
        pytest.skip("the kernel does not say which pages are huge")
    assert [group["huge"] for group in groups if group["huge"]] == [size]
    assert f"{size >> 20}.0 MiB in huge pages" in drawn
