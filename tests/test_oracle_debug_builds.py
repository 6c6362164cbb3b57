"""Debug builds of CPython (``python3.N-dbg``), whose blocks have hooks, against what they say of themselves.

Up to 3.7 their objects are linked with each other (Py_TRACE_REFS): two pointers stand before the count.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from programs import RELEASES, ask, release_program, running
from test_oracle_pyobjects import Heaps, census, check, closure, difference, truth, values_bytes
from test_oracle_versions import OPCACHE, SAMPLE, VALUES, check_objects, check_pools

BUILDS = [f"{release}-dbg" for release in RELEASES]
builds = pytest.mark.parametrize("build", BUILDS)


@builds
@pytest.mark.parametrize("mode", ["", "pymalloc"])
def test_pools(build: str, mode: str, rng: random.Random, tmp_path: Path) -> None:
    """Each size class's pools and blocks, with hooks and, in 3.6 and later, without them."""
    if mode and build.startswith("2"):
        pytest.skip("PYTHONMALLOC came with 3.6")
    program = release_program(build, "pools", rng.getrandbits(32), rng.randrange(5000, 30_000))
    with running(program, tmp_path, {"PYTHONMALLOC": mode}) as target:
        check_pools(target, ask("pools", str(target.pid)))


@builds
@pytest.mark.parametrize("mode", ["", "pymalloc", "malloc"])
def test_every_reachable_object(build: str, mode: str, rng: random.Random, tmp_path: Path) -> None:
    """No wrong type, one in a thousand at most unknown."""
    if mode and build.startswith("2"):
        pytest.skip("PYTHONMALLOC came with 3.6")
    program = release_program(build, "closure", rng.getrandbits(32), 1000, tmp_path / "truth")
    with running(program, tmp_path, {"PYTHONMALLOC": mode}) as target:
        heaps = Heaps(target.pid)
        reached = {a: name for a, name in closure(tmp_path / "truth").items() if a in heaps}
        check_objects(str(target.pid), reached, rng.sample(sorted(reached), min(len(reached), SAMPLE)))
        rows = census(str(target.pid))
    names = list(reached.values())
    short = {name: names.count(name) - rows.get(name, (0, 0, 0))[0] for name in set(names)}
    assert sum(max(0, missing) for missing in short.values()) <= len(names) // 1000, short


@builds
def test_exactly_the_new_objects(build: str, rng: random.Random, tmp_path: Path) -> None:
    """Between two stops: every population to the object and the byte with its hooks, and no other type changed."""
    release = build.split("-")[0]
    arguments = (rng.getrandbits(32), 1500, 20_000, tmp_path / "truth")
    with running(release_program(build, "population", *arguments), tmp_path) as target:
        before = census(str(target.pid))
        target.go_on()
        after = census(str(target.pid))
        expected = truth(target, tmp_path / "truth", VALUES.get(release, values_bytes))
    changes = difference(before, after)
    if release in OPCACHE:
        assert changes.pop("code", (0, 0, 0))[:2] == (0, 0)
    check(changes, expected)
