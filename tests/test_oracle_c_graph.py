"""Retained sizes, chains and referrers in a program without Python: on random graphs, those of brute force."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from reference.blocks import Blocks
from support.programs import KERNEL_CORE, PROCESS, ask, c_program, running

ASKED = 12


@pytest.mark.parametrize("form", [PROCESS, KERNEL_CORE])
@pytest.mark.parametrize("inside", [0, 1, 5])
@pytest.mark.parametrize("count", [3, 40, 3000])
def test_answers_are_those_of_brute_force(
    count: int, inside: int, form: str, rng: random.Random, tmp_path: Path
) -> None:
    """``inside`` of ten words lead into the middle of a block."""
    arguments = (rng.getrandbits(31), count, inside, tmp_path / "truth")
    with running(c_program("random_c_graph", *arguments), tmp_path) as started:
        truth = Blocks.read(tmp_path / "truth")
        target = started.as_form(form)
        some = rng.sample(sorted(truth.reached()), min(ASKED, len(truth.reached())))
        check_retained(truth, target, some)
        check_lost(truth, target)
        for block in some:
            check_chain(truth, target, block)
            check_referrers(truth, target, block)


def check_retained(truth: Blocks, target: str, some: list[int]) -> None:
    """Assert what blocks keep: what is reached no more without them."""
    edges = truth.counting()
    rows = {row["address"]: row for row in ask("retained", target)["rows"] if row["address"] in truth.sizes}
    largest = sorted(rows.values(), key=lambda row: -row["retained"])[:ASKED]
    for row in [*largest, *(rows[block] for block in some if block in rows)]:
        block = row["address"]
        assert row["retained"] == truth.size(truth.kept_by(block, edges)), hex(block)
        assert (row["count"], row["bytes"]) == (1, truth.sizes[block])
    for block in some:
        kept = truth.kept_by(block, edges)
        within = ask("retained", target, hex(block))["rows"]
        assert (sum(row["count"] for row in within), sum(row["bytes"] for row in within)) == (
            len(kept),
            truth.size(kept),
        ), hex(block)
    # The one that keeps the most is listed.
    best = max(truth.size(truth.kept_by(block, edges)) for block in some)
    assert not some or max((row["retained"] for row in rows.values()), default=0) >= best


def check_lost(truth: Blocks, target: str) -> None:
    """Assert that what nothing reaches is lost, and what words into the middle alone reach is told apart."""
    found: dict[bool, set[int]] = {False: set(), True: set()}
    for row in ask("unreachable", target)["rows"]:
        found[row["by_stray"]] |= set(row["addresses"])
    assert found[False] == set(truth.sizes) - truth.reached()
    assert found[True] == truth.reached() - truth.certain()


def check_chain(truth: Blocks, target: str, block: int) -> None:
    """Assert that a chain leads from static data to the block by edges that are there, and that none is shorter."""
    chain = [step["address"] for step in ask("why", target, hex(block))["chain"]]
    steps = [address for address in chain if address in truth.sizes]
    assert steps[-1] == block and steps[0] in truth.roots and chain[-len(steps) :] == steps
    certain = block in truth.certain()
    edges = truth.to_start if certain else truth.edges
    assert all(later in edges[earlier] for earlier, later in zip(steps, steps[1:]))
    if certain:
        assert len(steps) - 1 == truth.distances(edges)[block]


def check_referrers(truth: Blocks, target: str, block: int) -> None:
    """Assert that the blocks that point to one are those that refs lists, and static data where it has it."""
    found = {row["address"] for row in ask("refs", target, hex(block), "--top=all")["referrers"]}
    assert found & set(truth.sizes) == {source for source, targets in truth.edges.items() if block in targets}
    assert bool(found - set(truth.sizes)) == (block in truth.roots)
