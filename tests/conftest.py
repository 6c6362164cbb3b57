"""What all tests share: the installed package is the one tested, and a fresh random seed for each run."""

from __future__ import annotations

import os
import random
import signal
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
# `python -m pytest` puts the current folder first; there gdbheap lies without its native module and its commands.
sys.path[:] = [entry for entry in sys.path if Path(entry or ".").resolve() != ROOT]

SEED = int(os.environ.get("GDBHEAP_SEED") or random.SystemRandom().randrange(1 << 32))
# Where several processes share the tests, the first one's seed is everybody's.
os.environ["GDBHEAP_SEED"] = str(SEED)

# Started in the background of a shell, or by nohup, the tests would ignore these, and so would all that they start.
for number, action in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
    if signal.getsignal(number) == signal.SIG_IGN:
        signal.signal(number, action)


def pytest_report_header() -> str:
    """Say the seed first, so that a failure can be repeated."""
    return f"random seed: {SEED} (repeat with GDBHEAP_SEED={SEED})"


@pytest.fixture
def rng(request: pytest.FixtureRequest) -> random.Random:
    """Return a generator whose numbers depend on this run's seed and the test's name, not on the order of the tests."""
    return random.Random(f"{SEED} {request.node.nodeid}")
