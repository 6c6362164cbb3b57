"""Debug builds of CPython (``python3.N-dbg``), whose blocks have hooks, against their own counts.

Up to 3.7 their objects are linked with each other (Py_TRACE_REFS): two pointers precede the reference count.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from support.closures import check_counts, check_objects, reached_in_heaps, some
from support.pool_figures import check_pools
from support.populations import census, check_new_objects
from support.programs import RELEASES, ask, release_program, running

pytestmark = pytest.mark.cases(4)

BUILDS = [f"{release}-dbg" for release in RELEASES]
builds = pytest.mark.parametrize("build", BUILDS)


@builds
@pytest.mark.parametrize("mode", ["", "pymalloc"])
def test_pools(build: str, mode: str, rng: random.Random, tmp_path: Path) -> None:
    """Check each size class's pools and blocks, with hooks and, in 3.6 and later, without them."""
    if mode and build.startswith("2"):
        pytest.skip("PYTHONMALLOC came with 3.6")
    program = release_program(build, "pools", rng.getrandbits(32), rng.randrange(5000, 30_000))
    with running(program, tmp_path, {"PYTHONMALLOC": mode}) as target:
        check_pools(target, ask("pools", str(target.pid)))


@builds
@pytest.mark.parametrize("mode", ["", "pymalloc", "malloc"])
def test_every_reachable_object(build: str, mode: str, rng: random.Random, tmp_path: Path) -> None:
    """Check that no type is wrong, and that at most one in a thousand is unknown."""
    if mode and build.startswith("2"):
        pytest.skip("PYTHONMALLOC came with 3.6")
    program = release_program(build, "closure", rng.getrandbits(32), 1000, tmp_path / "truth")
    with running(program, tmp_path, {"PYTHONMALLOC": mode}) as target:
        reached = reached_in_heaps(target.pid, tmp_path / "truth")
        check_objects(str(target.pid), reached, some(reached, rng))
        check_counts(reached, census(str(target.pid)))


@builds
def test_exactly_the_new_objects(build: str, rng: random.Random, tmp_path: Path) -> None:
    """Check every population between two stops, to the object and the byte with its hooks; no other type changed."""
    arguments = (rng.getrandbits(32), 1500, 20_000, tmp_path / "truth")
    with running(release_program(build, "population", *arguments), tmp_path) as target:
        check_new_objects(target, tmp_path / "truth", build.split("-")[0])
