"""Every CPython that is found here: ``heap pools`` and ``heap pyobjects`` against what it says of itself."""

from __future__ import annotations

import random
import struct
from pathlib import Path
from typing import Any

import kernel
import pytest
from library import heap_of
from programs import (
    KERNEL_CORE,
    KINDS,
    RELEASES,
    Running,
    ask,
    interpreter_of_release,
    release_program,
    running,
    since,
    stripped_library,
)
from reference import pymalloc
from test_oracle_pools import answered, told
from test_oracle_pyobjects import Heaps, census, check, closure, difference, same, truth, values_bytes

from gdbheap.answers.at import at

# 3.12: the word 24 bytes before an object is its dict, or points one byte before its values: that byte's distance back
# is where their block begins.
DICT_OR_VALUES = -24
SAMPLE = 1000
# PYTHONMALLOC came with 3.6, where "debug" means hooks around malloc.
HOOKED = since("3.6")


def without_symbols(release: str, kind: str) -> dict[str, str]:
    """Return the environment in which a release's program runs as that kind of build."""
    interpreter = interpreter_of_release(release)
    if interpreter.kind == kind:
        return {}
    if kind == "unstripped":
        pytest.skip(f"the CPython {release} here is stripped")
    return {"LD_LIBRARY_PATH": str(stripped_library(interpreter))}


def assert_loaded(target: Running, environment: dict[str, str]) -> None:
    """The copy of the library is the one that runs."""
    for folder in environment.values():
        assert any(mapped.path.startswith(folder) for mapped in kernel.maps(target.pid))


def referenced(pid: int) -> dict[int, tuple[int, int, int]]:
    """Return {size: (pools, used, free)} by the plain walker, whichever size of pools fits more blocks."""
    walks = [list(pymalloc.pools(pid, size)) for size in (pymalloc.POOL, pymalloc.OLD_POOL)]
    pools = max(walks, key=lambda found: sum(len(pool.used) for pool in found))
    rows: dict[int, tuple[int, int, int]] = {}
    for pool in pools:
        count, used, free = rows.get(pool.size, (0, 0, 0))
        rows[pool.size] = (count + 1, used + len(pool.used), free + len(pool.free))
    return rows


def check_pools(target: Running, answer: dict[str, Any]) -> None:
    """Compare with sys._debugmallocstats(), and with the plain walker, which is all there is for 2.7."""
    assert answer["damage"] == []
    found = answered(answer)
    assert found["classes"] == referenced(target.pid)
    if target.stderr:
        assert found == told(target.stderr)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("release", RELEASES)
def test_pools(release: str, kind: str, rng: random.Random, tmp_path: Path) -> None:
    """Each size class's pools and blocks, arenas and free pools, with and without symbols."""
    environment = without_symbols(release, kind)
    for objects in (rng.randrange(16, 5000), rng.randrange(20_000, 60_000)):
        program = release_program(release, "pools", rng.getrandbits(32), objects)
        with running(program, tmp_path, environment) as target:
            assert bool(target.stderr) == (release != "2.7")
            assert_loaded(target, environment)
            check_pools(target, ask("pools", str(target.pid)))


@pytest.mark.parametrize("release", RELEASES)
def test_every_reachable_object(release: str, rng: random.Random, tmp_path: Path) -> None:
    """No object of the closure of gc.get_objects() has a wrong type, one in a thousand at most has none; a core says
    the same as the process."""
    program = release_program(release, "closure", rng.getrandbits(32), 2000, tmp_path / "truth")
    with running(program, tmp_path) as target:
        heaps = Heaps(target.pid)
        reached = {a: name for a, name in closure(tmp_path / "truth").items() if a in heaps}
        sample = rng.sample(sorted(reached), min(len(reached), SAMPLE))
        check_objects(str(target.pid), reached, sample)
        rows, pools = census(str(target.pid)), answered(ask("pools", str(target.pid)))
        core = target.as_form(KERNEL_CORE)
        assert (census(core), answered(ask("pools", core))) == (rows, pools)
        check_objects(core, reached, sample[: SAMPLE // 4])
    names = list(reached.values())
    short = {name: names.count(name) - rows.get(name, (0, 0, 0))[0] for name in set(names)}
    assert sum(max(0, missing) for missing in short.values()) <= len(names) // 1000, short


def check_objects(target: str, reached: dict[int, str], sample: list[int]) -> None:
    """Ask for each address."""
    with heap_of(target) as heap:
        found = {address: at(heap, address).object for address in sample}
    other = [(hex(a), reached[a], found[a]) for a in sample if not same(found[a], a, reached[a])]
    assert not [row for row in other if row[2] is not None], other[:20]
    assert len(other) <= len(sample) // 1000, other[:20]


OPCACHE = ("3.8", "3.9", "3.10")


@pytest.mark.parametrize("release", RELEASES)
def test_exactly_the_new_objects(release: str, rng: random.Random, tmp_path: Path) -> None:
    """Between two stops: every population to the object and the byte, with its buffers, and no other type changed."""
    arguments = (rng.getrandbits(32), 1500, 20_000, tmp_path / "truth")
    with running(release_program(release, "population", *arguments), tmp_path) as target:
        before = census(str(target.pid))
        target.go_on()
        after = census(str(target.pid))
        expected = truth(target, tmp_path / "truth", VALUES.get(release, values_bytes))
    changes = difference(before, after)
    if release in OPCACHE:
        # Code that has run often gets a cache of its own: no code is new, and none has grown.
        assert changes.pop("code", (0, 0, 0))[:2] == (0, 0)
    check(changes, expected)


def packed_values_bytes(pid: int, thing: int) -> int:
    """Return the size of the block of an object's attribute values as 3.12 keeps them; 0 without one."""
    word = kernel.read_u64(pid, thing + DICT_OR_VALUES)
    if not word & 1:
        return 0
    block = word + 1 - kernel.read(pid, word, 1)[0]
    (szidx,) = struct.unpack("<I", kernel.read(pid, (block & -pymalloc.POOL) + 36, 4))
    return 16 * (int(szidx) + 1)


VALUES = {"3.12": packed_values_bytes}


@pytest.mark.parametrize("release", HOOKED)
def test_debug_hooks(release: str, rng: random.Random, tmp_path: Path) -> None:
    """With a size and pad bytes around each block: the same figures, and every object still found."""
    environment = {"PYTHONMALLOC": "pymalloc_debug" if release == "3.6" else rng.choice(["debug", "pymalloc_debug"])}
    program = release_program(release, "pools", rng.getrandbits(32), rng.randrange(5000, 20_000))
    with running(program, tmp_path, environment) as target:
        check_pools(target, ask("pools", str(target.pid)))
    program = release_program(release, "closure", rng.getrandbits(32), 500, tmp_path / "truth")
    with running(program, tmp_path, environment) as target:
        heaps = Heaps(target.pid)
        reached = {a: name for a, name in closure(tmp_path / "truth").items() if a in heaps}
        assert "debug hooks" in {fact["fact"] for fact in ask("info", str(target.pid))["facts"]}
        check_objects(str(target.pid), reached, rng.sample(sorted(reached), min(len(reached), SAMPLE)))
