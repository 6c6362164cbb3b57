"""Settings that all tests share: the installed package is tested, with a fresh random seed for each run."""

from __future__ import annotations

import os
import random
import re
import signal
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

ROOT = Path(__file__).resolve().parent.parent
# `python -m pytest` puts the current folder first. The gdbheap there has no native module and no commands.
sys.path[:] = [entry for entry in sys.path if Path(entry or ".").resolve() != ROOT]

SEED = int(os.environ.get("GDBHEAP_SEED") or random.SystemRandom().randrange(1 << 32))
# If several processes share the tests, all use the seed of the first one.
os.environ["GDBHEAP_SEED"] = str(SEED)

# If the tests run in a shell's background or under nohup, they and all programs that they start would ignore these
# signals.
for number, action in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
    if signal.getsignal(number) == signal.SIG_IGN:
        signal.signal(number, action)


# A CPython release, or a build of one, among a test's parameters. A run of all tests takes only some of many builds.
BUILD = re.compile(r"((?:2\.7|3\.\d+)t?)(?:-\w+)?\Z")
SOME = 2
SWEEP = "GDBHEAP_SWEEP"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the options that ``make test`` uses."""
    about = f"of tests for each interpreter run {SOME}, of those marked in_turn or cases some, other ones each time"
    parser.addoption("--in-turn", action="store_true", help=about)


def pytest_configure(config: pytest.Config) -> None:
    """Declare the markers of the tests."""
    config.addinivalue_line(
        "markers", "in_turn(name, count): a run of all tests takes so many of the parameter's values"
    )
    config.addinivalue_line("markers", "cases(count): a run of all tests takes at most so many of each test's cases")
    config.addinivalue_line("markers", f"sweep: where {SWEEP} is set, a run of all tests takes all of its cases")
    config.pluginmanager.register(Failures(config))
    # No example has a deadline, because another process may have the processor for longer than an example takes.
    settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
    settings.load_profile("untimed")
    if config.getoption("hypothesis_seed", None) is None:
        config.option.hypothesis_seed = SEED


class Failures:
    """Prints each failure when it happens, so that a run that is ended from outside has shown its failures."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Print a failure."""
        reporter = self.config.pluginmanager.get_plugin("terminalreporter")
        if report.failed and reporter is not None:
            reporter.write_line(f"\nFAILED {report.nodeid} ({report.when})\n{report.longreprtext}")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out some tests, chosen by the run's seed, and print how many were left out."""
    if not config.getoption("--in-turn"):
        return
    builds: dict[str, set[str]] = defaultdict(set)
    values: dict[tuple[str, str], list[object]] = defaultdict(list)
    for item in items:
        builds[_name(item)] |= _builds(item)
        for group, value, _count in _in_turn(item):
            values[group].append(value)
    taken = {name: _some(name, found) for name, found in builds.items()}

    def is_taken(item: pytest.Item) -> bool:
        chosen = (
            value in random.Random(f"{SEED} {group}").sample(values[group], min(count, len(values[group])))
            for group, value, count in _in_turn(item)
        )
        return _builds(item) <= taken[_name(item)] and all(chosen)

    swept = {item for item in items if item.get_closest_marker("sweep") and os.environ.get(SWEEP)}
    taken_by_both = swept | set(_cases([item for item in items if is_taken(item)]))
    config.hook.pytest_deselected(items=[item for item in items if item not in taken_by_both])
    items[:] = [item for item in items if item in taken_by_both]


def _cases(items: list[pytest.Item]) -> Iterator[pytest.Item]:
    """Yield the cases of each test, as many as its nearest marker allows."""
    found: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        found[_name(item)].append(item)
    for name, cases in found.items():
        marker = cases[0].get_closest_marker("cases")
        if marker is None or len(cases) <= marker.args[0]:
            yield from cases
        else:
            yield from random.Random(f"{SEED} cases {name}").sample(cases, marker.args[0])


def _in_turn(item: pytest.Item) -> Iterator[tuple[tuple[str, str], object, int]]:
    """Yield, for each marker, the case without the parameter that is taken in turn, the value of this parameter, and
    the count."""
    for marker in item.iter_markers("in_turn"):
        name, count = marker.args
        params = _params(item)
        value = params.pop(name)
        # The addresses of functions differ between processes, so functions are sorted by name.
        others = sorted((key, getattr(other, "__qualname__", other)) for key, other in params.items())
        yield (_name(item), repr(others)), value, count


def _some(name: str, builds: set[str]) -> set[str]:
    """Return some of the builds, preferring those that this machine may have to those that would be skipped."""
    from support.programs import interpreters

    here = sorted(one for one in builds if (found := BUILD.match(one)) is not None and interpreters(found[1]))
    return set(random.Random(f"{SEED} {name}").sample(here, SOME) if len(here) > SOME else here) or builds


def _name(item: pytest.Item) -> str:
    return item.nodeid.partition("[")[0]


def _builds(item: pytest.Item) -> set[str]:
    return {value for value in _params(item).values() if isinstance(value, str) and BUILD.match(value)}


def _params(item: pytest.Item) -> dict[str, object]:
    callspec = getattr(item, "callspec", None)
    return {} if callspec is None else dict(callspec.params)


def pytest_report_header() -> str:
    """Return a line with the seed, so that a failure can be repeated."""
    return f"random seed: {SEED} (repeat with GDBHEAP_SEED={SEED})"


@pytest.fixture(autouse=True, scope="module")
def seeded(request: pytest.FixtureRequest) -> None:
    """Seed the generators of code that does not use ``rng``, such as module fixtures."""
    random.seed(f"{SEED} {request.node.nodeid}")


@pytest.fixture
def rng(request: pytest.FixtureRequest) -> random.Random:
    """Return a generator whose numbers depend on this run's seed and the test's name, not on the order of the tests."""
    return random.Random(f"{SEED} {request.node.nodeid}")
