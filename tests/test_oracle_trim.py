"""``heap trim``: its prediction equals the kernel's loss of RssAnon when malloc_trim() is called."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from support import kernel
from support.programs import GCORE, KERNEL_CORE, Running, ask, c_program, gdbheap, python_program, running

pytestmark = pytest.mark.cases(14)

FOREIGN, BLOCKED, LOCKED, FORKED, AGAIN, FAST = 1, 2, 4, 8, 16, 32
# malloc_trim() itself may touch a little memory for the first time: its stack, a page of libc's data.
OWN = 4 * kernel.PAGE
HUGE = {"": "", "huge pages": "glibc.malloc.hugetlb=1", "no caches": "glibc.malloc.tcache_count=0"}


def program(rng: random.Random, threads: int, mode: int, largest: int = 200_000) -> list[str]:
    """Return the command of trim.c with random fragmentation."""
    return c_program("trim", rng.getrandbits(30), threads, 30_000 // threads, 3000 // threads, largest, mode)


def trimmed(target: Running, pad: int = 0) -> int:
    """Let the program call malloc_trim(pad); return by how much RssAnon shrank."""
    before = kernel.anonymous(target.pid)
    target.go_on(str(pad))
    return before - kernel.anonymous(target.pid)


def check_sums(answer: dict[str, Any]) -> None:
    """Check that the arenas add up, and that a prediction has no actual figures."""
    rows = answer["rows"]
    assert answer["actual"] is None and all(row["actual"] is None for row in rows)
    assert sum(row["predicted"] for row in rows) == answer["predicted"]
    assert sum(row["pages"] for row in rows) == answer["total"]["pages"] >= answer["predicted"]
    assert sorted(row["index"] for row in rows) == list(range(len(rows)))


@pytest.mark.parametrize("tunables", HUGE.values(), ids=HUGE)
@pytest.mark.parametrize("mode", [0, FOREIGN, BLOCKED, FORKED, AGAIN, FAST, FAST + AGAIN + FORKED])
@pytest.mark.parametrize("threads", [1, 9])
def test_prediction(threads: int, mode: int, tunables: str, rng: random.Random, tmp_path: Path) -> None:
    """Check the main arena alone, and with eight threads' arenas, in every state; afterwards nothing more can be
    released."""
    with running(program(rng, threads, mode), tmp_path, {"GLIBC_TUNABLES": tunables}) as target:
        answer = ask("trim", str(target.pid))
        actual = trimmed(target)
        left = ask("trim", str(target.pid))["predicted"]
    check_sums(answer)
    assert len(answer["rows"]) == threads
    assert abs(answer["predicted"] - actual) <= OWN, answer
    assert left == 0
    assert actual > 1 << 20, "nothing to speak of was given back"


@pytest.mark.parametrize("threads", [1, 9])
def test_in_swap(threads: int, rng: random.Random, tmp_path: Path) -> None:
    """Check that the released bytes are the resident and swapped ones; walking the lists brings pages back, but no
    more."""
    with running(program(rng, threads, 0), tmp_path) as target:
        kernel.page_out(target.pid, rng)
        answer = ask("trim", str(target.pid))
        before = kernel.anonymous(target.pid) + kernel.rollup(target.pid)[1]
        target.go_on("0")
        actual = before - kernel.anonymous(target.pid) - kernel.rollup(target.pid)[1]
    assert answer["total"]["swapped"] > 0
    assert abs(answer["predicted"] + answer["total"]["swapped"] - actual) <= OWN, answer


def test_pad(rng: random.Random, tmp_path: Path) -> None:
    """Check that --pad is malloc_trim's argument, and counts only for the top of the main arena."""
    with running(program(rng, 2, 0), tmp_path) as target:
        top = next(row["top"] for row in ask("arenas", str(target.pid))["rows"] if row["index"] == 0)
        pads = [0, 1, top // 2, rng.randrange(top), top, 1 << 62]
        whole = {pad: ask("trim", str(target.pid), f"--pad={pad}")["total"]["pages"] for pad in pads}
        for pad in sorted(pads, reverse=True):
            answer = ask("trim", str(target.pid), f"--pad={pad}")
            assert abs(answer["predicted"] - trimmed(target, pad)) <= OWN, (pad, answer)
    assert whole[0] - whole[1 << 62] == (top - 33) // kernel.PAGE * kernel.PAGE
    assert sorted(whole.values()) == [whole[pad] for pad in sorted(pads, reverse=True)]


@pytest.mark.parametrize("threads", [1, 3])
def test_locked_memory(threads: int, rng: random.Random, tmp_path: Path) -> None:
    """Check locked memory: only the end of the break is released, and the answer says why."""
    with running(program(rng, threads, LOCKED), tmp_path) as target:
        answer = ask("trim", str(target.pid))
        assert abs(answer["predicted"] - trimmed(target)) <= OWN, answer
    assert any("mlock" in warning for warning in answer["warnings"])
    assert answer["predicted"] == sum(row["top_predicted"] for row in answer["rows"])


@pytest.mark.parametrize("kind", ["stripped", "unstripped"])
def test_python(kind: str, rng: random.Random, tmp_path: Path) -> None:
    """Check that a Python process that has dropped large buffers releases the predicted bytes by its own
    malloc_trim(0)."""
    with running(python_program(kind, "trimming", rng.getrandbits(32), 300), tmp_path) as target:
        answer = ask("trim", str(target.pid))
        actual = trimmed(target)
    check_sums(answer)
    # Between reading the line and the call, the interpreter runs and takes a little memory.
    assert abs(answer["predicted"] - actual) <= max(64 << 10, actual // 50), answer
    assert actual > 1 << 20


def test_cores(rng: random.Random, tmp_path: Path) -> None:
    """Check that a kernel core gives the same as the process, and that gdb's core, without residency, has the same
    whole pages."""
    with running(program(rng, 3, AGAIN + FAST), tmp_path) as target:
        live = ask("trim", str(target.pid))
        from_gdb = ask("trim", target.as_form(GCORE))
        from_kernel = ask("trim", target.as_form(KERNEL_CORE))
    assert from_kernel["rows"] == live["rows"] and from_kernel["predicted"] == live["predicted"]
    unknown = {"predicted": None, "swapped": None, "top_predicted": None, "top_kept": None}
    by_index = {row["index"]: row for row in from_gdb["rows"]}
    assert by_index == {row["index"]: {**row, **unknown} for row in live["rows"]}
    assert from_gdb["predicted"] is None and from_gdb["total"]["pages"] == live["total"]["pages"]


def test_ledger_says_the_same(rng: random.Random, tmp_path: Path) -> None:
    """Check that ``heap`` and ``heap trim`` agree, and that no more is released than is free."""
    with running(program(rng, 3, FAST), tmp_path) as target:
        answer, trim = ask("", str(target.pid)), ask("trim", str(target.pid))
    lines = {line["id"]: line for line in answer["ledger"]}
    assert (
        answer["reclaimable"] == trim["predicted"] <= lines["glibc.free"]["resident"] + lines["glibc.top"]["resident"]
    )


def test_usage(rng: random.Random, tmp_path: Path) -> None:
    """Check that an impossible use gives one line and status 2."""
    with running(program(rng, 1, 0), tmp_path) as target:
        both = gdbheap("trim", str(target.pid), "--yes", "--dry-run")
        large = gdbheap("trim", str(target.pid), "--pad=9223372036854775808")
        dry = gdbheap("trim", str(target.pid), "--dry-run")
        before = kernel.anonymous(target.pid)
        core = gdbheap("trim", target.as_form(KERNEL_CORE), "--yes")
    assert before > 1 << 20 and dry.returncode == 0 and "would return" in dry.stdout
    for done in (both, large, core):
        assert done.returncode == 2 and done.stdout == "" and len(done.stderr.splitlines()) == 1, done.stderr
