"""A core after glibc's abort(): the message, the block to blame, its holder, and the caller of free().

The program records the block before it misuses it. One of its globals points to the record.
"""

from __future__ import annotations

import json
import random
import shutil
import subprocess
from pathlib import Path

import pytest
from support import programs
from support.programs import SOURCES, build, gdbheap, running

WHY = {"top": "overflow", "next": "overflow", "twice": "freed twice", "large": "freed twice"}
FORMS = ("with symbols", "stripped")


def aborted(how: str, form: str, rng: random.Random, folder: Path) -> tuple[Path, int, str]:
    """Return the kernel's core, the address of the block, and glibc's message."""
    program, truth = build("aborts", *(["-s"] if form == "stripped" else [])), folder / "truth"
    with running([str(program), how, str(rng.getrandbits(32)), str(truth)], folder) as target:
        core = target.aborted_core()
        return core, int.from_bytes(truth.read_bytes(), "little"), target.stderr.strip()


@pytest.mark.cases(2)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("how", WHY)
def test_the_block_is_named(how: str, form: str, rng: random.Random, tmp_path: Path) -> None:
    """Check that the record has the message, the block, its holder and the calls above free(), and that all first lines
    have them."""
    core, address, said = aborted(how, form, rng, tmp_path)
    found = json.loads(gdbheap("check", str(core), "--json").stdout)["abort"]
    assert found["message"] == said
    assert (found["block"]["address"], found["block"]["why"]) == (address, WHY[how])
    assert found["holder"]
    if form == "with symbols":
        assert "kept_here" in found["holder"] or "blocks" in found["holder"]
        names = ["main"] if how == "top" else ["give_away", "main"]
        assert found["frames"][: len(names)] == names
        # Each source line has the call: of the function below it, or of malloc's.
        lines = [line.strip() for line in (SOURCES / "aborts.c").read_text().splitlines()]
        places = [source.rpartition(":") for source in found["sources"][: len(names)]]
        assert {file for file, _, _ in places} == {str(SOURCES / "aborts.c")}
        called = [lines[int(line) - 1] for _, _, line in places]
        assert called[-1].startswith("give_away(") if len(names) > 1 else "malloc(" in called[0], called
        assert called[0] == "free(block);" or len(names) == 1, called
    else:
        assert found["frames"][0].startswith("aborts+0x") and set(found["sources"]) == {None}
    noun = rng.choice(([], ["check"], ["info"]))
    done = gdbheap(*noun, str(core))
    assert done.stdout.splitlines()[0] == f"Process ended by abort(): {said}", done


def test_contents_are_shown_where_they_may_be(rng: random.Random, tmp_path: Path) -> None:
    """Check that the answer has the text that was too long, but not with --no-text."""
    core, _address, _said = aborted("next", "stripped", rng, tmp_path)
    assert "a label that is too long" in gdbheap("check", str(core)).stdout
    told = gdbheap("check", str(core), "--no-text")
    assert "ended by abort()" in told.stdout and "label" not in told.stdout
    assert json.loads(gdbheap("check", str(core), "--json", "--no-text").stdout)["abort"]["block"]["text"] is None


def test_a_core_that_gdb_wrote(rng: random.Random, tmp_path: Path) -> None:
    """Check that gdb's core of a program that it ran until the signal gives the same answer, with calls in threads
    --c-frames."""
    if shutil.which("gdb") is None:
        pytest.skip("no gdb")
    core, truth = tmp_path / "written-by-gdb", tmp_path / "truth"
    steps = ["-ex", "run", "-ex", f"gcore {core}"]
    program = [str(build("aborts")), "next", str(rng.getrandbits(32)), str(truth)]
    command = ["gdb", "-nx", "-batch", "-iex", "set debuginfod enabled off", *steps, "--args", *program]
    done = subprocess.run(command, input=b"\n", capture_output=True, timeout=programs.PATIENCE)
    assert core.exists(), done
    found = json.loads(gdbheap("check", str(core), "--json").stdout)["abort"]
    assert found["block"]["address"] == int.from_bytes(truth.read_bytes(), "little")
    assert found["frames"][:2] == ["give_away", "main"]
    threads = json.loads(gdbheap("threads", str(core), "--c-frames", "--json").stdout)["rows"]
    names = [frame["function"] for frame in threads[0]["running"]]
    assert names[names.index("abort") :][-3:] and "give_away" in names and "main" in names


def test_nothing_is_said_of_others(rng: random.Random, tmp_path: Path) -> None:
    """Check that a running process, and a core after a signal from outside, have no such record."""
    program = [str(build("aborts")), "next", str(rng.getrandbits(32)), str(tmp_path / "truth")]
    with running(program, tmp_path) as target:
        assert json.loads(gdbheap("check", str(target.pid), "--json").stdout)["abort"] is None
        core = target.kernel_core()
    assert json.loads(gdbheap("check", str(core), "--json").stdout)["abort"] is None


DEEP = """
#include <stdlib.h>
#include <unistd.h>
#line 1 "LONG"
__attribute__((noinline)) void deep(int more, char *block)
{
    if (more) deep(more - 1, block);
    else { free(block); free(block); }
    __asm__ volatile("" : : "r"(block) : "memory");
}
int main(void)
{
    char *volatile block = malloc(4000), line;
    return read(0, (char *)&line, 1) == 1 && (deep(300, block), 1);
}
"""


def test_callers_of_a_deep_stack(tmp_path: Path) -> None:
    """Check that of many callers in a file with a long path only some are named, with the end of its path."""
    compiler, long = shutil.which("gcc"), "a" * 3900 + "/🦀 long.c"
    if compiler is None:
        pytest.skip("no C compiler")
    (tmp_path / "deep.c").write_text(DEEP.replace("LONG", long))
    flags = ["-g", "-O1", "-w", "-fno-builtin", "-fno-optimize-sibling-calls"]
    program = tmp_path / "deep"
    subprocess.run([compiler, *flags, str(tmp_path / "deep.c"), "-o", str(program)], check=True)
    with running([str(program)], tmp_path) as target:
        core = target.aborted_core()
    found = json.loads(gdbheap("check", str(core), "--json").stdout)["abort"]
    assert found["frames"] == ["deep"] * 50
    assert {source.rpartition(":")[0] for source in found["sources"]} == {"…" + long[-299:]}
