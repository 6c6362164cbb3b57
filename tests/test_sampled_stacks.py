"""The stacks of sampled blocks in use of a jemalloc that samples, against the profile that it writes."""

from __future__ import annotations

import random
import re
from collections import Counter
from pathlib import Path

import pytest
from support import programs
from support.jemallocs import BUILT, newest
from support.programs import KERNEL_CORE, PROCESS, ask, gdbheap, running

SAMPLING = [path for path in BUILT if path.stem.endswith("-prof")]
# Each allocation of some thousand bytes is sampled, with unscaled counts.
SETTINGS = "prof:true,lg_prof_sample:13,prof_unbias:false"
Counts = Counter[tuple[tuple[int, ...], str]]


def dumped(path: Path) -> Counts:
    """Return (objects and bytes in use) by stack of a profile of jemalloc's."""
    found: Counts = Counter()
    for stack, rest in re.findall(r"^@((?: 0x[0-9a-f]+)+)\n((?:  .*\n)+)", path.read_text(), re.MULTILINE):
        for count, size in re.findall(r"t\d+: (\d+): (\d+) \[", rest):
            frames = tuple(int(frame, 16) for frame in stack.split())
            found[frames, "count"] += int(count)
            found[frames, "bytes"] += int(size)
    return found


def answered(target: str) -> Counts:
    """Return (objects and bytes in use) by stack from gdbheap's answer."""
    found: Counts = Counter()
    for row in ask("chunks", target, "--by=stack", "--top=0")["rows"]:
        for name in ("count", "bytes"):
            found[tuple(row["return_addresses"]), name] += row[name]
    return found


@pytest.mark.parametrize("form", [PROCESS, KERNEL_CORE])
@pytest.mark.parametrize("library", SAMPLING or [None], ids=lambda path: path.stem if path else "none")
def test_profile(library: Path | None, form: str, rng: random.Random, tmp_path: Path) -> None:
    """Check the stacks with their blocks and bytes against jemalloc's own file; functions have their names, and the
    first block is at its address."""
    if library is None:
        pytest.skip("no jemalloc that samples (scripts/jemallocs.sh)")
    dump = tmp_path / "dump"
    environment = {"LD_PRELOAD": str(library), "MALLOC_CONF": SETTINGS}
    with running(programs.c_program("sampled", rng.getrandbits(30), dump), tmp_path, environment) as running_target:
        target = running_target.as_form(form)
        said, found = dumped(dump), answered(target)
        assert len(said) > 10 and +found == +said
        answer = ask("chunks", target, "--by=stack", "--top=3")
        text = gdbheap("chunks", target, "--by=stack", "--top=3").stdout
        drawn = gdbheap("chunks", target, "--by=stack", "--top=3", "--format=folded").stdout
        first = ask("at", target, hex(answer["rows"][0]["address"]))["block"]
    assert answer["count"] == len({frames for frames, _ in +said}) and len(answer["rows"]) == 3
    assert answer["total"]["bytes"] == sum(value for (_, name), value in said.items() if name == "bytes")
    names = {frame["name"] for row in answer["rows"] for frame in row["frames"]}
    assert {"deeper", "work", "large"} <= names and "deeper" in text and "prof_backtrace" not in text
    assert (first["allocator"], first["state"]) == ("jemalloc", "used")
    # The tree has all of them, even if the list is cut.
    assert sum(int(line.rpartition(" ")[2]) for line in drawn.splitlines()) == answer["total"]["bytes"]
    assert any(line.startswith("_start;") or ";deeper;" in line or "main;" in line for line in drawn.splitlines())
    assert "prof_backtrace" not in drawn
    # The estimate from the samples; releases before 5.3 have none.
    told = answer["total"]["likely_bytes"] is not None
    assert told == library.stem.startswith("libjemalloc-5.3")
    assert (
        not told
        or answer["total"]["bytes"] <= answer["total"]["likely_bytes"]
        and answer["total"]["count"] <= answer["total"]["likely_count"]
    )


def test_nothing_is_sampled(rng: random.Random, tmp_path: Path) -> None:
    """Check that without prof:true there is no answer about sampled stacks, but one line with the remedy."""
    with running(
        programs.c_program("sparse", rng.getrandbits(30), 100, 2, 1), tmp_path, {"LD_PRELOAD": newest()}
    ) as target:
        done = gdbheap("chunks", str(target.pid), "--by=stack")
    assert done.returncode == 5 and done.stdout == ""
    assert len(done.stderr.splitlines()) == 1 and "prof:true" in done.stderr
