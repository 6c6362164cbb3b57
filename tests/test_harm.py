"""Nothing is harmed, bounded: a few killed commands and a few rounds of attach and release under load.

``tests/harm`` does the same by the thousand. Here too, a program checks itself and a client checks its server's
replies.
"""

from __future__ import annotations

import os
import random
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from harm.kills import Killer
from harm.rounds import STOP, Rounds
from harm.targets import Target, started, wait_for
from harm.verdict import Watch
from support.library import heap_of

KILLS, ROUNDS = 10, 12
# Calls that a tracer's stop ends with EINTR; a tracer that is killed at that very instant cannot repair this.
CUT_SHORT = "EINTR"


@pytest.fixture(scope="module")
def targets(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Target]]:
    """Yield a program that checks itself, and a server with a client."""
    with started(["checking", "http"], tmp_path_factory.mktemp("targets")) as found:
        yield found


@pytest.fixture
def watches(targets: list[Target], tmp_path: Path) -> list[Watch]:
    """Return a watch of each target, with its state before the test."""
    return [Watch(target, tmp_path) for target in targets]


def test_commands_that_are_killed(watches: list[Watch], rng: random.Random, tmp_path: Path) -> None:
    """Check that the targets are alive, neither traced nor stopped, that no signal is lost, and that nothing is
    left."""
    killer = Killer(watches, tmp_path, [])
    for _ in range(KILLS):
        told, harm = killer.one(rng)
        lasting = {what: n for what, n in harm.items() if n > 0 and not what.startswith(CUT_SHORT)}
        assert not lasting, f"{told}: {lasting}"
    # Without memory even Python cannot report why it ends.
    unclear = [ending for _, ending in killer.endings if ending.unclear and ending.way != "memory"]
    assert not unclear, unclear


def test_rounds_of_attach_and_release(watches: list[Watch], rng: random.Random, tmp_path: Path) -> None:
    """Check that no call is cut short either: a stop that ends normally leaves no trace."""
    rounds = Rounds(watches, tmp_path, [])
    try:
        for watch in watches:
            harm = sum((rounds.one(watch, rng) for _ in range(ROUNDS)), Counter[str]())
            assert not +harm, f"{watch.target.name}: {+harm}"
            assert rounds.kinds[watch.target.pid, STOP].count and not rounds.said, rounds.said
    finally:
        rounds.close()


def test_harm_is_seen(targets: list[Target], tmp_path: Path) -> None:
    """Check the means of detection: a stopped thread, a traced one, a file and an interrupted call are each found."""
    target = targets[0]
    watch = Watch(target, tmp_path)
    assert not +watch.judge()
    # The awaited state has been reached by then, so there is no need to wait for it.
    watch.patience = 0.1
    with heap_of(str(target.pid)):
        assert target.tracers == {str(os.getpid())} and watch.judge()["traced or stopped"] == 1
    wait_for(lambda: target.is_free, "it was not let go")
    os.kill(target.pid, signal.SIGSTOP)
    wait_for(lambda: not target.is_free, "it was not stopped")
    assert watch.judge()["traced or stopped"] == 1
    os.kill(target.pid, signal.SIGCONT)
    wait_for(lambda: target.is_free, "it does not go on")
    (tmp_path / "left").touch()
    found = watch.judge()
    assert found["files left"] == 1 and not found["traced or stopped"]
    (tmp_path / "left").unlink()
