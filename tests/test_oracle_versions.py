"""Every CPython that is found here: ``heap pools`` and ``heap pyobjects`` against its own figures."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from support import kernel
from support.closures import SAMPLE, check_counts, check_objects, reached_in_heaps, some
from support.interpreter_copies import without_symbols
from support.pool_figures import answered, check_pools
from support.populations import census, check_new_objects
from support.programs import (
    KERNEL_CORE,
    KINDS,
    RELEASES,
    Running,
    ask,
    release_program,
    running,
    since,
)

pytestmark = pytest.mark.cases(2)

# PYTHONMALLOC came with 3.6, where "debug" means hooks around malloc.
HOOKED = since("3.6")


def assert_loaded(target: Running, environment: dict[str, str]) -> None:
    """Check that the running library is the copy."""
    for folder in environment.values():
        assert any(mapped.path.startswith(folder) for mapped in kernel.maps(target.pid))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("release", RELEASES)
def test_pools(release: str, kind: str, rng: random.Random, tmp_path: Path) -> None:
    """Check each size class's pools and blocks, arenas and free pools, with and without symbols."""
    environment = without_symbols(release, kind)
    for objects in (rng.randrange(16, 5000), rng.randrange(20_000, 60_000)):
        program = release_program(release, "pools", rng.getrandbits(32), objects)
        with running(program, tmp_path, environment) as target:
            assert bool(target.stderr) == (release != "2.7")
            assert_loaded(target, environment)
            check_pools(target, ask("pools", str(target.pid)))


@pytest.mark.parametrize("release", RELEASES)
def test_every_reachable_object(release: str, rng: random.Random, tmp_path: Path) -> None:
    """Check that no object of the closure of gc.get_objects() has a wrong type, that at most one in a thousand has
    none, and that a core gives the same types."""
    program = release_program(release, "closure", rng.getrandbits(32), 2000, tmp_path / "truth")
    with running(program, tmp_path) as target:
        reached = reached_in_heaps(target.pid, tmp_path / "truth")
        sample = some(reached, rng)
        check_objects(str(target.pid), reached, sample)
        rows, pools = census(str(target.pid)), answered(ask("pools", str(target.pid)))
        core = target.as_form(KERNEL_CORE)
        assert (census(core), answered(ask("pools", core))) == (rows, pools)
        check_objects(core, reached, sample[: SAMPLE // 4])
    check_counts(reached, rows)


@pytest.mark.parametrize("release", RELEASES)
def test_exactly_the_new_objects(release: str, rng: random.Random, tmp_path: Path) -> None:
    """Check every population between two stops, to the object and the byte, with its buffers; no other type changed."""
    arguments = (rng.getrandbits(32), 1500, 20_000, tmp_path / "truth")
    with running(release_program(release, "population", *arguments), tmp_path) as target:
        check_new_objects(target, tmp_path / "truth", release)


@pytest.mark.parametrize("release", HOOKED)
def test_debug_hooks(release: str, rng: random.Random, tmp_path: Path) -> None:
    """Check the same figures with a size and pad bytes around each block, and that every object is still found."""
    environment = {"PYTHONMALLOC": "pymalloc_debug" if release == "3.6" else rng.choice(["debug", "pymalloc_debug"])}
    program = release_program(release, "pools", rng.getrandbits(32), rng.randrange(5000, 20_000))
    with running(program, tmp_path, environment) as target:
        check_pools(target, ask("pools", str(target.pid)))
    program = release_program(release, "closure", rng.getrandbits(32), 500, tmp_path / "truth")
    with running(program, tmp_path, environment) as target:
        reached = reached_in_heaps(target.pid, tmp_path / "truth")
        assert "debug hooks" in {fact["fact"] for fact in ask("info", str(target.pid))["rows"]}
        check_objects(str(target.pid), reached, some(reached, rng))
