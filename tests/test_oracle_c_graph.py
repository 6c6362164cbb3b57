"""Retained sizes, chains and referrers in a program without Python: on random graphs, compared with brute force."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from reference.blocks import Blocks
from support.programs import KERNEL_CORE, PROCESS, c_program, gdbheap, running

pytestmark = pytest.mark.cases(8)

ASKED = 12


@pytest.mark.parametrize("form", [PROCESS, KERNEL_CORE])
@pytest.mark.parametrize("inside", [0, 1, 5])
@pytest.mark.parametrize("count", [3, 40, 3000])
def test_answers_are_those_of_brute_force(
    count: int, inside: int, form: str, rng: random.Random, tmp_path: Path
) -> None:
    """Check the answers; ``inside`` of ten words lead into the middle of a block."""
    arguments = (rng.getrandbits(31), count, inside, tmp_path / "truth")
    with running(c_program("random_c_graph", *arguments), tmp_path) as started:
        truth = Blocks.read(tmp_path / "truth")
        target = started.as_form(form)
        some = rng.sample(sorted(truth.reached()), min(ASKED, len(truth.reached())))
        whole, lost, *each = answers(
            target, ["retained --top=all", "unreachable --top=all", *(line for one in some for line in lines(one))]
        )
    check_lost(truth, lost)
    check_listed(truth, whole, some)
    for block, within, why, refs in zip(some, each[::3], each[1::3], each[2::3], strict=True):
        check_kept(truth, within, block)
        check_chain(truth, why, block)
        check_referrers(truth, refs, block)


def lines(block: int) -> list[str]:
    """Return the questions about one block."""
    return [f"{noun} {block:#x} --top=all" for noun in ("retained", "why", "refs")]


def answers(target: str, asked: list[str]) -> list[dict[str, Any]]:
    """Return the documents of a session, which reads the graph once."""
    done = gdbheap("shell", target, "--json", input="\n".join(asked))
    assert (done.returncode, done.stderr) == (0, ""), done
    return [json.loads(line)["answer"] for line in done.stdout.splitlines()]


def check_listed(truth: Blocks, answer: dict[str, Any], some: list[int]) -> None:
    """Check the blocks that each block keeps: those that are unreachable without it.

    Left out are blocks that keep only themselves, and inner ones, for which the nearest block that keeps them has their
    size, or keeps the same within a hundredth.
    """
    rows = {row["address"]: row for row in answer["rows"] if row["address"] in truth.sizes}
    largest = sorted(rows, key=lambda block: -rows[block]["retained"])[:ASKED]
    for block in {*largest, *some}:
        kept = truth.kept_by(block)
        above = truth.dominator(block)
        is_inner = above is not None and (
            truth.sizes[above] == truth.sizes[block] or 100 * truth.size(kept) >= 99 * truth.size(truth.kept_by(above))
        )
        assert (block in rows) == (len(kept) > 1 and not is_inner), hex(block)
        if block in rows:
            row = rows[block]
            assert (row["retained"], row["count"], row["own"]) == (truth.size(kept), 1, truth.sizes[block])


def check_kept(truth: Blocks, answer: dict[str, Any], block: int) -> None:
    """Check how many blocks and bytes a block keeps, by the rows of their types."""
    kept, rows = truth.kept_by(block), answer["rows"]
    found = sum(row["count"] for row in rows), sum(row["own"] for row in rows)
    assert found == (len(kept), truth.size(kept)), hex(block)


def check_lost(truth: Blocks, answer: dict[str, Any]) -> None:
    """Check that unreachable blocks are lost, and that blocks reached only by words into their middle are reported
    separately."""
    found: dict[bool, set[int]] = {False: set(), True: set()}
    for row in answer["rows"]:
        found[row["group"] == "doubtful"] |= set(row["addresses"])
    assert found[False] == set(truth.sizes) - truth.reached()
    assert found[True] == truth.reached() - truth.certain()


def check_chain(truth: Blocks, answer: dict[str, Any], block: int) -> None:
    """Check that a chain leads from static data to the block by existing edges, and that none is shorter."""
    chain = [step["address"] for step in answer["rows"]]
    steps = [address for address in chain if address in truth.sizes]
    assert steps[-1] == block and steps[0] in truth.roots and chain[-len(steps) :] == steps
    certain = block in truth.certain()
    edges = truth.to_start if certain else truth.edges
    assert all(later in edges[earlier] for earlier, later in zip(steps, steps[1:]))
    if certain:
        assert len(steps) - 1 == truth.distances(edges)[block]


def check_referrers(truth: Blocks, answer: dict[str, Any], block: int) -> None:
    """Check that refs lists exactly the blocks that point to one, and static data if they do."""
    found = {row["address"] for row in answer["rows"]}
    own = {source for source, targets in truth.edges.items() if block in targets and source != block}
    assert (found & set(truth.sizes)) - {block} == own
    assert bool(found - set(truth.sizes)) == (block in truth.roots)
