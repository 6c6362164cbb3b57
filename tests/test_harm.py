"""Nothing is harmed, bounded: a few commands that are killed and a few rounds of attach and release under load.

``tests/harm`` does the same by the thousand. Here too a program checks itself, and a client its server's replies.
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
# What a tracer's stop ends with EINTR; a tracer that is killed at that very instant cannot mend it.
CUT_SHORT = "EINTR"


@pytest.fixture(scope="module")
def targets(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Target]]:
    """Yield a program that checks itself, and a server with a client."""
    with started(["checking", "http"], tmp_path_factory.mktemp("targets")) as found:
        yield found


@pytest.fixture
def watches(targets: list[Target], tmp_path: Path) -> list[Watch]:
    """Return both, looked at before anything is done."""
    return [Watch(target, tmp_path) for target in targets]


def test_commands_that_are_killed(watches: list[Watch], rng: random.Random, tmp_path: Path) -> None:
    """Alive, not traced, not stopped, no signal lost, nothing left; what they say themselves is clear."""
    killer = Killer(watches, tmp_path, [])
    for _ in range(KILLS):
        told, harm = killer.one(rng)
        lasting = {what: n for what, n in harm.items() if n > 0 and not what.startswith(CUT_SHORT)}
        assert not lasting, f"{told}: {lasting}"
    # Without memory even Python cannot say why it ends.
    unclear = [ending for _, ending in killer.endings if ending.unclear and ending.way != "memory"]
    assert not unclear, unclear


def test_rounds_of_attach_and_release(watches: list[Watch], rng: random.Random, tmp_path: Path) -> None:
    """No call is cut short either: a stop that ends in its own time leaves no trace."""
    rounds = Rounds(watches, tmp_path, [])
    try:
        for watch in watches:
            harm = sum((rounds.one(watch, rng) for _ in range(ROUNDS)), Counter[str]())
            assert not +harm, f"{watch.target.name}: {+harm}"
            assert rounds.kinds[watch.target.pid, STOP].count and not rounds.said, rounds.said
    finally:
        rounds.close()


def test_harm_is_seen(targets: list[Target], tmp_path: Path) -> None:
    """The means: a stopped thread, a traced one, a file and a cut call are told from none."""
    target = targets[0]
    watch = Watch(target, tmp_path)
    assert not +watch.judge()
    # What is awaited has come by then: who judges need not wait for it.
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
