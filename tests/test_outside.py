"""Memory outside of all allocators is on the first page: named, counted as in use, and a finding."""

from __future__ import annotations

import random
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from support import kernel
from support.programs import Running, ask, build, c_program, gdbheap, running

MIB = 1 << 20
NAMES = {
    "static": r"static variable 'table' in outside",
    "file": r"written pages of .*/mapped \(private mapping\)",
    "deep": r"stack of thread PID \(.*\), the main thread",
    "break": r"memory from brk\(\) that malloc does not use",
    "storage": r"thread-local data of \d+ threads",
    "threads": r"stacks of 16 threads.*",
}
# Other memory of each thread and of the program: its stack, libraries' pages.
BESIDES = 2 * MIB
# The end of an ended thread's stack that stays resident: the kernel takes the rest back (glibc, advise_stack_range).
KEPT = 16 << 10


def started(mode: str, mebibytes: int, folder: Path) -> list[str]:
    """Return the command of outside.c."""
    return c_program("outside", mode, mebibytes, folder / "mapped")


def in_use(page: dict[str, Any]) -> float:
    """Return the percentage of RSS in use, by the verdict."""
    found = re.search(r"\(([\d.]+) %\) in use", page["verdict"])
    assert found, page["verdict"]
    return float(found[1])


@pytest.mark.cases(2)
@pytest.mark.parametrize("mode", NAMES)
def test_named_and_in_use(mode: str, rng: random.Random, tmp_path: Path) -> None:
    """Check that the first holder is the variable or mapping with the memory, with its resident bytes, and so is the
    finding; the verdict counts at least these bytes as in use."""
    mebibytes = rng.randrange(24, 64)
    with running(started(mode, mebibytes, tmp_path), tmp_path) as target:
        page = ask("", str(target.pid))
    first, size = page["holders"][0], mebibytes * MIB
    assert re.fullmatch(NAMES[mode].replace("PID", str(target.pid)), first["path"]), page["holders"]
    assert size * 0.99 <= first["resident"] <= size + BESIDES
    assert first["share"] == pytest.approx(first["resident"] / page["rss"]["bytes"], abs=1e-3)
    assert in_use(page) >= 100 * first["share"] - 0.1
    (found,) = [row for row in page["findings"] if row["id"] == "holder"]
    assert found["bytes"] == first["resident"] and first["path"] in found["text"]


def test_left_below_the_stack_pointer(rng: random.Random, tmp_path: Path) -> None:
    """Check that memory that a deep call left on a stack is named so, and does not count as in use."""
    mebibytes = rng.randrange(24, 64)
    with running(started("returned", mebibytes, tmp_path), tmp_path) as target:
        page, words = ask("", str(target.pid)), gdbheap("", str(target.pid)).stdout
    first, size = page["holders"][0], mebibytes * MIB
    assert re.fullmatch(r"stack of thread \d+ \(.*\) below its stack pointer", first["path"]), page["holders"]
    assert size * 0.99 <= first["resident"] <= size + BESIDES
    assert first["resident"] == page["summary"]["stacks_left"]
    assert in_use(page) < 10 and "left on stacks by calls that have returned" in page["verdict"]
    (found,) = [row for row in page["findings"] if row["id"] == "holder"]
    assert found["bytes"] == first["resident"] and not found["commands"] and "MADV_DONTNEED" in words


def test_one_figure(rng: random.Random, tmp_path: Path) -> None:
    """Check that memory that a program mapped in many places has one figure in the row, the finding and the ledger,
    except for the page of the first thread's data."""
    pieces = rng.randrange(40, 80)
    with running([str(build("apart")), str(pieces)], tmp_path) as target:
        page = ask("", str(target.pid))
    (found,) = [row for row in page["findings"] if row["id"] == "mapped-memory"]
    (line,) = [row for row in page["ledger"] if row["id"] == "other"]
    figures = [page["holders"][0]["resident"], found["bytes"], line["resident"]]
    assert pieces * MIB <= min(figures) and max(figures) - min(figures) < MIB // 16, figures
    assert re.search(rf"mappings, {pieces} of them of 1.0 MiB;|{pieces} mappings of 1.0 MiB;", found["text"])


@pytest.mark.parametrize(("mode", "is_said"), [(0, True), (1, True), (2, False), (3, False)])
def test_threads_that_nobody_joined(mode: int, is_said: bool, rng: random.Random, tmp_path: Path) -> None:
    """Check that the stacks of ended threads are called unjoined if they are, whether another thread runs or not. This
    is not said of detached threads, nor in the child of a fork, which may use the stacks for new threads."""
    threads, size = rng.randrange(250, 400), rng.randrange(60, 90) << 10
    with running([str(build("unjoined")), str(threads), str(size), str(mode)], tmp_path) as target:
        place = Path(f"/proc/{target.pid}/task/{target.pid}/children")
        pid = int(place.read_text()) if mode == 3 else target.pid
        page = ask("", str(pid))
        parent = ask("", str(target.pid)) if mode == 3 else page
    named = {row["path"]: row for row in page["holders"]}
    lines = [row["name"] for row in page["ledger"] if row["name"].startswith("stacks of ended threads")]
    assert set(lines) <= {f"stacks of ended threads, {threads} never joined" if is_said else "stacks of ended threads"}
    assert lines or not is_said
    path = f"stacks of {threads} threads that ended and were never joined"
    assert (path in named) == is_said
    assert (path in {row["path"] for row in parent["holders"]}) == (mode != 2)
    if is_said:
        assert named[path]["kind"] == "joinable stacks" and named[path]["resident"] >= threads * KEPT
        (found,) = [row for row in page["findings"] if row["id"] == "holder"]
        assert "pthread_join() or pthread_detach()" in found["advice"]


def test_shared_mappings_of_files(rng: random.Random, tmp_path: Path) -> None:
    """Check that a shared mapping of a file on a disk has its own row and clause, and is no shared memory."""
    system = subprocess.run(["stat", "-f", "-c", "%T", tmp_path], capture_output=True, text=True, check=True)
    if system.stdout.strip() in ("tmpfs", "ramfs"):
        pytest.skip("the folder for tests is in memory")
    mebibytes = rng.randrange(24, 64)
    with running(started("shared", mebibytes, tmp_path), tmp_path) as target:
        page = ask("", str(target.pid))
    first = page["holders"][0]
    assert (first["path"], first["kind"]) == (f"pages of {tmp_path / 'mapped'} (shared mapping)", "file")
    assert first["resident"] == mebibytes * MIB and f"{mebibytes}.0 MiB is in pages of mapped files" in page["verdict"]
    assert [row["id"] for row in page["findings"]] == ["mapped-files"]


def unlocked(target: Running) -> int:
    """Let the program unlock and trim; return by how much RssAnon shrank."""
    before = kernel.anonymous(target.pid)
    target.go_on()
    return before - kernel.anonymous(target.pid)


def test_free_and_locked(rng: random.Random, tmp_path: Path) -> None:
    """Check that free memory that mlock() keeps is a finding of as many bytes as munlockall() and malloc_trim() give
    back."""
    with running(started("locked", rng.randrange(16, 64), tmp_path), tmp_path) as target:
        if not kernel.in_rollup(target.pid, "Locked"):
            pytest.skip("memory cannot be locked here")
        page = ask("", str(target.pid))
        actual = unlocked(target)
    (found,) = [row for row in page["findings"] if row["id"] == "locked"]
    assert "munlock" in found["advice"]
    assert abs(found["bytes"] - actual) <= MIB


def test_owners_say_what_they_leave_out(rng: random.Random, tmp_path: Path) -> None:
    """Check that below the heap's holders stand the bytes outside of the heap, with the name of each holder."""
    mebibytes = rng.randrange(24, 64)
    with running(started("static", mebibytes, tmp_path), tmp_path) as target:
        answer, text = ask("owners", str(target.pid)), gdbheap("owners", str(target.pid)).stdout
    assert answer["outside"] == pytest.approx(mebibytes * MIB, rel=0.02)
    assert answer["outside_most"].startswith("static variable 'table'")
    assert f"Not in this list: {mebibytes}." in text
    assert sum(row["resident"] for row in answer["outside_rows"]) == answer["outside"]
    first = answer["outside_rows"][0]
    assert (first["path"], first["resident"]) == (answer["outside_most"], pytest.approx(mebibytes * MIB, rel=0.02))
    assert first["path"] in text.partition("Not in this list")[2]


@pytest.mark.parametrize(
    ("mode", "where"),
    [
        ("register", "keep_in_register"),
        ("caller", "keep_over_call"),
        ("read", "keep_over_read"),
    ],
)
def test_function_of_a_variable_in_a_register(mode: str, where: str, rng: random.Random, tmp_path: Path) -> None:
    """Check that a variable in a register, even in one that other functions saved, is assigned to its function."""
    with running(started(mode, rng.randrange(8, 64), tmp_path), tmp_path) as target:
        page = ask("", str(target.pid))
    path = page["holders"][0]["path"]
    assert f" of {where}" in path and "wait_with_registers" not in path, path


def test_buffers_of_node(rng: random.Random, tmp_path: Path) -> None:
    """Check that Buffers, which malloc has, are one holder, whatever the number of mappings of the V8 objects that
    keep them."""
    node = shutil.which("node") or pytest.skip("no node on the path")
    count = rng.randrange(60, 120)
    script = f"b=[];for(i=0;i<{count};i++)b.push(Buffer.alloc(1<<20,1));require('fs').readSync(0,Buffer.alloc(1))"
    with running([node, "-e", script], tmp_path) as target:
        page = ask("", str(target.pid))
    first = page["holders"][0]
    assert first["path"].startswith("objects in the V8 (JavaScript) heap") and first["kind"] == "runtime heap"
    # Some may be held by words of other memory.
    assert 0.9 * count * MIB <= first["resident"] <= (count + 8) * MIB
    assert [row["bytes"] for row in page["findings"] if row["id"] == "holder"] == [first["resident"]]


def test_buffers_of_node_are_no_strings(rng: random.Random, tmp_path: Path) -> None:
    """Check that the words that keep the memory of a Buffer in V8, which look like a std::string, are not called
    one."""
    node = shutil.which("node") or pytest.skip("no node on the path")
    count, size = rng.randrange(1000, 2000), rng.randrange(5000, 9000)
    script = f"b=[];for(i=0;i<{count};i++)b.push(Buffer.alloc({size},1));require('fs').readSync(0,Buffer.alloc(1))"
    with running([node, "-e", script], tmp_path) as target:
        page, rows = ask("", str(target.pid)), ask("chunks", str(target.pid), "--by=type")["rows"]
    names = [part["what"] for row in page["holders"] for part in row["parts"]] + [row["type"] for row in rows]
    assert not any(name.startswith("std::string") for name in names if name)
    assert "buffer of a std::string or an ArrayBuffer" in names
