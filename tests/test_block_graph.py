"""The graph of a program without Python: each kind of root by its name, and the unreachable blocks."""

from __future__ import annotations

import random
import subprocess
from pathlib import Path

import pytest
from support.library import heap_of
from support.programs import PROCESS, ask, c_program, gdbheap, running

from gdbheap.answers.at import at as look_at
from gdbheap.answers.owners import owners
from gdbheap.answers.refs import refs
from gdbheap.answers.retained import retained_set
from gdbheap.answers.unreachable import Unreachable, unreachable
from gdbheap.answers.why import why

FORMS = (PROCESS, "kernel core", "gcore")
# The text of the first step of the chain to each block, with and without symbols.
FIRST = {
    "whole": ("'whole' in roots", ".bss+"), "table": ("'table'+0x28 in roots", ".bss+"),
    "hidden": ("'hidden'", ".bss+"),
    "own": ("thread-local own of thread ", "thread-local data of thread "), "local": ("stack of thread ",) * 2,
    "mapped": ("[anonymous] at ",) * 2,
}  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("stripped", [False, True], ids=["symbols", "stripped"])
def test_each_block_by_its_root(stripped: bool, form: str, rng: random.Random, tmp_path: Path) -> None:
    """Check that chains begin at the root with the program's pointer, are shortest, and name each word's place."""
    seed = rng.getrandbits(30)
    command = c_program("roots", seed)
    if stripped:
        subprocess.run(["strip", command[0], "-o", str(tmp_path / "roots")], check=True)
        command[0] = str(tmp_path / "roots")
    with running(command, tmp_path) as target:
        blocks = {}
        for name, at, size in (line.rsplit(" ", 2) for line in target.stderr.splitlines()):
            blocks[name] = (int(at, 16), int(size))
        with heap_of(target.as_form(form)) as heap:
            chains = {name: why(heap, at).rows for name, (at, _size) in blocks.items()}
            lost = unreachable(heap)
            referrers = refs(heap, blocks["third"][0] + 77, None).rows
            by_thread = {row.what: row.root or "" for row in owners(heap, 20000, None, "thread").groups}
            kept = {row.type: row.own for row in retained_set(heap, blocks["second"][0]).rows}
            at = look_at(heap, blocks["second"][0] + 9)
    for name, told in FIRST.items():
        edge = chains[name][0].edge
        assert edge.startswith(told[stripped]), (name, edge)
    offset = 4096 + seed % 100 * 8
    assert [step.edge for step in chains["third"]][1:] == ["+0x0", f"{offset:+#x}"]
    assert chains["fourth"][-1].edge == "+0x10 to +0xc8 in it"
    way = [step.address for step in chains["fourth"]]
    assert way == [blocks[name][0] for name in ("whole", "second", "third", "fourth")]
    assert [(row.address, row.edge) for row in referrers] == [(blocks["second"][0], f"{offset:+#x}")]
    assert chains["lost"] == [] == chains["lost tail"]
    _check_lost(lost, blocks)
    for name, part in (("own", "thread-local data"), ("local", "stack")):
        assert by_thread[f"block of {blocks[name][1]:,} bytes"].startswith(f"{part} of thread ")
    assert kept == {f"block of {blocks[name][1]:,} bytes": blocks[name][1] for name in ("second", "third", "fourth")}
    assert [row.address for row in at.refers] == [blocks["third"][0]] and at.refers_to == 1


def _check_lost(answer: Unreachable, blocks: dict[str, tuple[int, int]]) -> None:
    """Check the two lost blocks, the one that points to the other first.

    The fourth is reached only by an interior pointer.
    """
    found = {(row.group == "doubtful", row.size): row.addresses for row in answer.rows}
    expected = {(False, blocks[name][1]): [blocks[name][0]] for name in ("lost", "lost tail")}
    assert found == {**expected, (True, blocks["fourth"][1]): [blocks["fourth"][0]]}
    (head,) = answer.heads
    together = blocks["lost"][1] + blocks["lost tail"][1]
    assert (head.address, head.count, head.retained) == (blocks["lost"][0], 2, together)
    assert answer.head_count == 1 and not head.in_circle


def test_frame_of_a_thread(tmp_path: Path) -> None:
    """Check that a local variable is found in the frame of its function."""
    with running(c_program("roots", 3), tmp_path) as target:
        (line,) = (line for line in target.stderr.splitlines() if line.startswith("local "))
        answer = ask("why", str(target.pid), line.split()[1])
    assert answer["rows"][0]["edge"].endswith(", in the frame of waits_here")


def test_groups_of_the_other_kind_are_refused(tmp_path: Path) -> None:
    """Check that a grouping by modules is refused, and that the error names the possible groups."""
    with running(c_program("roots", 3), tmp_path) as target:
        done = gdbheap("retained", str(target.pid), "--by=module")
    assert done.returncode == 2 and "use object, type, global, thread" in done.stderr
