"""The memory of a thread's stack. gdbheap recognises a stack by its bounds, not by a stack pointer alone."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from support import kernel
from support.library import heap_of
from support.programs import GCORE, KERNEL_CORE, PROCESS, SOURCES, Running, ask, c_program, gdbheap, running

from gdbheap.findings.finding import Evidence
from gdbheap.findings.stacks import rule as stacks
from gdbheap.heap import Heap
from gdbheap.targets.stack_mappings import Stack, live_parts
from gdbheap.targets.target import Target, Thread

pytestmark = pytest.mark.cases(4)

# The memory that counts as a stack beside the first thread's: nothing, the stack, or the stack and its guard page.
NOTHING, STACK, GUARDED = 0, 1, 2
OF_MALLOC = ("block", "chunk", "given-block", "given-chunk")
MODES = {
    "block": NOTHING, "chunk": NOTHING, "mapped": NOTHING, "signal": NOTHING, "given-block": NOTHING,
    "given-chunk": NOTHING, "given": STACK, "guarded": GUARDED,
}  # fmt: skip


def line_of(answer: dict[str, Any], name: str) -> dict[str, Any]:
    """Return the ledger's line with that id."""
    found: dict[str, Any] = next(line for line in answer["ledger"] if line["id"] == name)
    return found


def printed(target: Running) -> dict[str, tuple[int, int]]:
    """Return the start and the size of the stack and of the region, as the program prints them."""
    rows = [line.split() for line in target.stderr.splitlines()]
    return {name: (int(start, 16), int(size, 16)) for name, start, size in rows}


def main_stack(pid: int) -> kernel.Mapped:
    """Return the mapping that the kernel calls the stack."""
    return next(mapped for mapped in kernel.maps(pid) if mapped.path == "[stack]")


@pytest.mark.parametrize("mode", MODES)
def test_stacks_of_its_own_making(mode: str, rng: random.Random, tmp_path: Path) -> None:
    """Check that the kernel's stack, and a thread's stack with known bounds (a record or a guard page), are stacks.

    Other memory stays with its owner, and no byte has two owners.
    """
    with running(c_program("coroutines", rng.getrandbits(30), mode), tmp_path) as target:
        answer, (start, size) = ask("", str(target.pid)), printed(target)["stack"]
        first = main_stack(target.pid)
        place = ask("at", str(target.pid), hex(start + size // 2))
        rss = kernel.rollup(target.pid)[0]
    extra = {NOTHING: 0, STACK: size, GUARDED: size + 4096}[MODES[mode]]
    assert line_of(answer, "stacks")["virtual"] == first.end - first.start + extra
    assert not [warning for warning in answer["warnings"] if "claim" in warning]
    assert line_of(answer, "unexplained")["resident"] == 0
    assert sum(line["resident"] for line in answer["ledger"] if line["parent"] is None) == rss
    assert (place["block"] is not None) == (mode in OF_MALLOC)
    if mode in OF_MALLOC:
        assert place["block"]["state"] == "used" and place["block"]["address"] <= start
        line = "glibc.mmapped" if mode.endswith("chunk") else "glibc.used"
        assert line_of(answer, line)["virtual"] >= size


@pytest.mark.parametrize("form", [GCORE, KERNEL_CORE])
@pytest.mark.parametrize("mode", ["mapped", "given"])
def test_stacks_in_cores(mode: str, form: str, rng: random.Random, tmp_path: Path) -> None:
    """Check that a core's ledger has the same bytes for stacks as the process's."""
    with running(c_program("coroutines", rng.getrandbits(30), mode), tmp_path) as target:
        alive = line_of(ask("", str(target.pid)), "stacks")["virtual"]
        where = target.as_form(form)
        # For a core without residency, the memory beside stacks may be the largest part, and is not examined.
        status = gdbheap(where, "--json").returncode
        core = line_of(ask("", where, status=status), "stacks")["virtual"]
    assert status in (0, 5)
    assert core == alive


def test_threads_of_musl(rng: random.Random, tmp_path: Path) -> None:
    """Check that musl's own record of a thread bounds its stack, whatever is beside it."""
    if shutil.which("musl-gcc") is None:
        pytest.skip("no musl-gcc (Debian: apt install musl-tools)")
    program = tmp_path / "threads"
    flags = ["-O1", "-static", "-pthread", "-Wall", "-Wextra", "-Werror"]
    subprocess.run(["musl-gcc", *flags, str(SOURCES / "own_stacks.c"), "-o", str(program)], check=True)
    with running([str(program), str(rng.getrandbits(30))], tmp_path) as target:
        # Its malloc was never called, so the owner of its memory is unknown.
        done, first = gdbheap(str(target.pid), "--json"), main_stack(target.pid)
        assert done.returncode in (0, 5), done.stderr
        answer = json.loads(done.stdout)
        rows = [int(line.split()[1], 16) for line in target.stderr.splitlines()]
    size = sum(rows)
    found = line_of(answer, "stacks")["virtual"] - (first.end - first.start)
    # Beside each stack are its guard pages (two), thread-local data and the record.
    assert size <= found <= size + len(rows) * (64 << 10)


@pytest.fixture(scope="module")
def go_program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return goroutines.go, built."""
    go = shutil.which("go") or shutil.which("go", path="/usr/local/go/bin:/usr/lib/go/bin")
    if go is None:
        pytest.skip("no go")
    program: Path = tmp_path_factory.mktemp("go") / "goroutines"
    environment = {**os.environ, "CGO_ENABLED": "0", "GOFLAGS": "-mod=mod", "GO111MODULE": "off"}
    subprocess.run([go, "build", "-o", str(program), str(SOURCES / "goroutines.go")], check=True, env=environment)
    return program


@pytest.mark.parametrize("form", [PROCESS, KERNEL_CORE])
def test_goroutines(form: str, go_program: Path, rng: random.Random, tmp_path: Path) -> None:
    """Check that Go's stacks, which are in its own heap, do not become stacks by a stack pointer of its threads:
    beyond the kernel's, stacks have at most the runtime's own figure."""
    command = [str(go_program), str(rng.getrandbits(30))]
    with running(command, tmp_path, {"GOTRACEBACK": "crash"}) as target:
        words = target.stderr.split()
        stacks, written = int(words[3]), int(words[5])
        first = main_stack(target.pid)
        answer = ask("", target.as_form(form))
    assert line_of(answer, "stacks")["virtual"] - (first.end - first.start) <= stacks < 8 << 20
    # The runtime's heap has pages that were never written to.
    assert line_of(answer, "other")["resident"] >= written > 40 << 20


class Counted(Thread):
    """A thread that counts the reads of its stack pointer."""

    looks = 0

    def __getattribute__(self, name: str) -> Any:
        """Return the attribute."""
        Counted.looks += name == "sp"
        return super().__getattribute__(name)


def test_many_threads(rng: random.Random) -> None:
    """Check that the threads on a stack are found without comparing each pair; the result is that of the comparison."""
    starts = sorted(rng.sample(range(1, 4000), 500))
    found = [Stack(number, start << 20, (start << 20) + (1 << 18)) for number, start in enumerate(starts)]
    pointers = [(start << 20) + rng.randrange(1 << 19) for start in rng.choices(starts, k=500)]
    threads: list[Thread] = [Counted(number, 0, sp, 0) for number, sp in enumerate(pointers)]
    parts = live_parts(Target("process", threads=threads), found)
    assert Counted.looks <= 2 * len(threads)
    for stack, part in zip(found, parts):
        lowest = min((sp for sp in pointers if stack.start <= sp < stack.end), default=stack.start + 128)
        assert part == (max(stack.start, lowest - 128), stack.end)


def test_stacks_are_found_once(rng: random.Random, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that the search for stacks in blocks of malloc is done once, not once for each stack."""
    asked = []
    whole = Heap.stack_ranges.fget  # type: ignore[attr-defined]

    def counted(heap: Heap) -> Any:
        asked.append(heap)
        return whole(heap)

    with running(c_program("faults", rng.getrandbits(30), "stacks", tmp_path / "none"), tmp_path) as target:
        with heap_of(str(target.pid)) as heap:
            evidence = Evidence(heap, {})
            monkeypatch.setattr(Heap, "stack_ranges", property(counted))
            (claim,) = stacks.find(evidence)
    assert claim.finding.listed["threads"] == 32 and len(asked) == 1
