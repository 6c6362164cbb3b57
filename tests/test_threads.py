"""``heap threads``: frames of C between Python's as in gdb's backtrace, values, equal stacks, and retained bytes."""

from __future__ import annotations

import random
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.gdb_side import needs_gdb
from support.programs import (
    RELEASES,
    Running,
    ask,
    gdbheap,
    interpreter_of_release,
    plain_environment,
    release_program,
    running,
)

COUNT = 4
FRAME = re.compile(r"^#\d+ +(?:0x[0-9a-f]+ in )?(\S+) \(", re.MULTILINE)
LOOPS = ("_PyEval_EvalFrameDefault", "PyEval_EvalFrameEx")


@pytest.fixture(scope="module", params=["3.8", "3.10", "3.11", "3.12", "3.13"])
def release(request: pytest.FixtureRequest) -> str:
    """Return a release: each stores frames and calls of C in another way."""
    found: str = request.param
    interpreter_of_release(found)
    return found


@pytest.fixture(scope="module")
def size() -> int:
    """Return how many bytes each thread holds."""
    return random.randrange(200_000, 900_000)


@pytest.fixture(scope="module")
def target(release: str, size: int, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Yield a program of that release, whose threads wait."""
    with running(release_program(release, "called_back", COUNT, size), tmp_path_factory.mktemp("threads")) as started:
        yield started


@pytest.fixture(scope="module")
def threads(target: Running) -> dict[int, dict[str, Any]]:
    """Return the answer with all options."""
    return {row["tid"]: row for row in ask("threads", str(target.pid), "--values", "--c-frames")["rows"]}


def functions(thread: dict[str, Any], of_c: bool) -> list[str]:
    """Return the functions of a thread, the innermost first."""
    return [frame["function"] for frame in thread["running"] if frame["kind"] == ("native" if of_c else "python")]


def test_python_between_c(release: str, target: Running, threads: dict[int, dict[str, Any]]) -> None:
    """Check that a function that was called from C is inside its caller."""
    frames = [frame["function"] for frame in threads[target.pid]["running"]]
    for above, between, below in (("last", "map_next", "inner"), ("compare", "list_sort_impl", "<module>")):
        if between in frames:
            assert frames.index(above) < frames.index(between) < frames.index(below)
    assert functions(threads[target.pid], of_c=False) == ["last", "inner", "compare", "<module>"]
    # Python functions that Python calls have no C between them since 3.11: one call of the loop runs both.
    between = frames[frames.index("inner") + 1 : frames.index("compare")]
    assert bool(between) == (release in ("3.8", "3.10")), between
    assert frames.index("pause") < frames.index("last")


@needs_gdb
def test_c_is_what_gdb_says(target: Running, threads: dict[int, dict[str, Any]]) -> None:
    """Check each thread's functions of C against gdb, except the interpreter's loop and inlined ones."""
    command = ["gdb", "-nx", "-batch", "-p", str(target.pid), "-ex", "thread apply all backtrace"]
    done = subprocess.run(command, capture_output=True, text=True, env=plain_environment())
    stacks = re.split(r"^Thread \d+ ", done.stdout, flags=re.MULTILINE)
    told = {int(found[1]): FRAME.findall(text) for text in stacks if (found := re.search(r"LWP (\d+)", text))}
    compared = 0
    for tid, thread in threads.items():
        # A place in an object has no name here, and may have one in gdb.
        ours = [name for name in functions(thread, of_c=True) if "+0x" not in name]
        # gdb lists inlined functions too, which have no frame.
        theirs = iter([name for name in told.get(tid, []) if not name.startswith(LOOPS)])
        assert all(any(_is_same(own, name) for name in theirs) for own in ours[:-4]), (ours, told[tid])
        compared += len(ours)
    assert compared > 20


def _is_same(own: str, name: str) -> bool:
    """Return whether two names are the same place: gdb omits compilers' suffixes, and has other names for some
    places."""
    return own.partition(".")[0].strip("_") in name or name.strip("_") in own or "pause" in own or "futex" in own


def test_values_and_what_is_kept(target: Running, threads: dict[int, dict[str, Any]], size: int) -> None:
    """Check texts of variables, and that each thread retains its own bytes, without shared ones."""
    workers = [row for tid, row in threads.items() if tid != target.pid]
    assert len(workers) == COUNT
    words = set()
    for row in workers:
        (frame,) = [frame for frame in row["running"] if frame["file"].endswith("called_back.py")]
        texts = {variable["name"]: variable["text"] for variable in frame["locals"]}
        words.add(texts["word"])
        assert size <= row["retained"] < size + 50_000, (row["retained"], size)
    assert words == {f"'worker {number}'" for number in range(COUNT)}
    plain = ask("threads", str(target.pid))["rows"]
    assert all(variable["text"] is None for row in plain for frame in row["running"] for variable in frame["locals"])


def test_same_stacks_are_one(target: Running) -> None:
    """Check that equal stacks are shown once in the text, with the number of threads."""
    text = gdbheap("threads", str(target.pid)).stdout
    assert f"{COUNT} threads at the same lines" in text
    assert text.count("called_back.py") == 5


def test_values_of_one_of_many(target: Running) -> None:
    """Check that for several threads at the same lines the text names the thread whose values it shows."""
    lines = gdbheap("threads", str(target.pid), "--values").stdout.splitlines()
    (said,) = [line for line in lines if line.startswith("The listed variables belong to thread ")]
    tid = int(said.split()[6])
    (row,) = [row for row in ask("threads", str(target.pid), "--values")["rows"] if row["tid"] == tid]
    texts = [one["text"] for frame in row["running"] for one in frame["locals"] if one["name"] == "word"]
    words = [line for line in lines if " word " in line]
    assert len(words) == len(texts) == 1 and texts[0] in words[0]


@pytest.mark.parametrize("of", ["3.6", "3.9", "3.11", "3.13"])
def test_what_variables_retain(of: str, rng: random.Random, tmp_path: Path) -> None:
    """Check that a dict of sessions retains their contents, and not objects that something else holds as well."""
    count, size = rng.randrange(100, 300), rng.randrange(5000, 9000)
    with running(release_program(of, "retaining", count, size), tmp_path) as target:
        (thread,) = ask("threads", str(target.pid))["rows"]
        text = gdbheap("threads", str(target.pid)).stdout
    serve = next(frame for frame in thread["running"] if frame["function"] == "serve")
    variables = {one["name"]: one for one in serve["locals"]}
    # A dict of one key, and the header of the bytes, take less than 600 bytes.
    assert count * size < variables["sessions"]["retained"] < count * (size + 600) + (64 << 10)
    assert variables["sessions"]["size"] < count * size / 10
    assert variables["elsewhere"]["retained"] < 1000
    assert variables["sessions"]["retained"] < serve["retained"] < variables["sessions"]["retained"] + 1000
    assert re.search(r"^ *retained +size +variable", text, re.MULTILINE)


@pytest.mark.parametrize("release", [release for release in RELEASES if release != "2.7"])
def test_what_a_loop_goes_through(release: str, rng: random.Random, tmp_path: Path) -> None:
    """Check that the iterator of a loop, which no variable names, is held by the frame that is in the loop, and not
    lost."""
    count = rng.randrange(300, 600)
    code = f"import os\nfor row in [bytearray(9000) for _ in range({count})]:\n    os.read(0, 1)"
    with running([interpreter_of_release(release).executable, "-c", code], tmp_path) as target:
        rows = ask("unreachable", str(target.pid))["rows"]
        (thread,) = ask("threads", str(target.pid))["rows"]
    held = [one["type"] for one in thread["running"][-1]["locals"] if one["name"] is None]
    lost = [row["type"] for row in rows if row["group"] == "lost_references"]
    assert "list_iterator" not in lost and held == ["list_iterator"]
