"""CPython without pymalloc (PYTHONMALLOC=malloc, malloc_debug): every object is in a chunk of malloc."""

from __future__ import annotations

import functools
import random
from pathlib import Path
from typing import Any

import pytest
from support import kernel
from support.closures import SAMPLE, check_counts, check_objects, reached_in_heaps, some
from support.other_allocators import library
from support.populations import DICT_OR_VALUES, VALUES, census, check_new_objects
from support.programs import KERNEL_CORE, ask, gdbheap, release_program, running, since

pytestmark = pytest.mark.cases(3)

# PYTHONMALLOC came with 3.6, where "debug" means hooks around malloc.
MODES = [(r, m) for r in since("3.6") for m in ("malloc", "malloc_debug", "debug") if m != "debug" or r == "3.6"]
HOOK = 16
modes = pytest.mark.parametrize(("release", "mode"), MODES)


def in_mode(release: str, mode: str, folder: Path, name: str, *arguments: object) -> Any:
    """Start a program of that release in that mode."""
    return running(release_program(release, name, *arguments), folder, {"PYTHONMALLOC": mode})


@modes
def test_no_pools(release: str, mode: str, rng: random.Random, tmp_path: Path) -> None:
    """Check that the interpreter has no figures of pymalloc, that the answer has none, and that nothing is damaged."""
    with in_mode(release, mode, tmp_path, "pools", rng.getrandbits(32), rng.randrange(100, 5000)) as target:
        assert "Small block threshold" not in target.stderr
        answer = ask("pools", str(target.pid))
        words = gdbheap("pools", str(target.pid)).stdout
        assert ask("check", str(target.pid))["ok"]
        ledger = {line["id"] for line in ask("", str(target.pid))["ledger"]}
    assert (answer["rows"], answer["arenas"], answer["free_pools"], answer["interpreters"]) == ([], 0, 0, [])
    assert (answer["arena_size"], answer["pool_size"], answer["warnings"]) == (None, None, [])
    assert "not in use" in words and "pymalloc.used" not in ledger


@modes
def test_every_reachable_object(release: str, mode: str, rng: random.Random, tmp_path: Path) -> None:
    """Check, as with pymalloc, that no type is wrong, that at most one in a thousand is unknown, and that a core
    gives the same types."""
    with in_mode(release, mode, tmp_path, "closure", rng.getrandbits(32), 1500, tmp_path / "truth") as target:
        reached = reached_in_heaps(target.pid, tmp_path / "truth")
        sample = some(reached, rng)
        check_objects(str(target.pid), reached, sample)
        rows = census(str(target.pid))
        check_chunks(str(target.pid), reached, rng)
        check_neighbours(str(target.pid), reached)
        core = target.as_form(KERNEL_CORE)
        assert census(core) == rows
        check_objects(core, reached, sample[: SAMPLE // 4])
    check_counts(reached, rows)


def check_chunks(target: str, reached: dict[int, str], rng: random.Random) -> None:
    """Check that each reachable object of a type is in one of the chunks of ``heap chunks --type``."""
    name = rng.choice(sorted(set(reached.values())))
    chunks = ask("chunks", target, f"--type={name}", "--top=1000000")["rows"]
    ends = {chunk["address"]: chunk["address"] + chunk["size"] for chunk in chunks}
    own = [address for address, kind in reached.items() if kind == name]
    missed = [hex(a) for a in own if not any(a < ends.get(start, 0) for start in range(a - 96, a + 8, 8))]
    assert len(missed) <= len(own) // 1000, (name, missed[:20])


def check_neighbours(target: str, reached: dict[int, str]) -> None:
    """Check that the blocks beside holes with a reachable object have its type."""
    holes = ask("holes", target, "--min=1", "--top=1000")["rows"]
    beside = [block for hole in holes for block in (hole["before"], hole["after"]) if block]
    held = [(block, a) for block in beside for a in range(block["address"], block["address"] + 96, 8) if a in reached]
    inside = [(block, a) for block, a in held if a < block["address"] + block["size"] - 8]
    assert inside
    wrong = [(block, reached[a]) for block, a in inside if block["what"] != reached[a]]
    assert not wrong, wrong[:20]


@modes
def test_exactly_the_new_objects(release: str, mode: str, rng: random.Random, tmp_path: Path) -> None:
    """Check every population between two stops, to the object and the byte, with its buffers; no other type changed."""
    arguments = (rng.getrandbits(32), 1500, 20_000, tmp_path / "truth")
    with in_mode(release, mode, tmp_path, "population", *arguments) as target:
        hook = 0 if mode == "malloc" else HOOK
        values = functools.partial(values_chunk, release=release, hook=hook)
        check_new_objects(target, tmp_path / "truth", release, values)


def values_chunk(pid: int, thing: int, release: str, hook: int) -> int:
    """Return the size of the chunk of an object's attribute values, by its header; 0 without one."""
    values = kernel.read_u64(pid, thing + (VALUES if release == "3.11" else DICT_OR_VALUES))
    if release == "3.12":
        values = values + 1 if values & 1 else 0
    if not values:
        return 0
    block = values - kernel.read(pid, values - 1, 1)[0]
    return kernel.read_u64(pid, block - hook - 8) & ~7


@pytest.mark.parametrize("release", since("3.6"))
def test_another_malloc(release: str, rng: random.Random, tmp_path: Path) -> None:
    """Check that objects in the blocks of an allocator that is not walked are counted, and that the answer without
    pools is complete."""
    program = release_program(release, "pools", rng.getrandbits(32), 100)
    with running(program, tmp_path, {"PYTHONMALLOC": "malloc", "LD_PRELOAD": library("tcmalloc")}) as target:
        assert ask("pools", str(target.pid))["rows"] == []
        found = {row["type"]: row for row in ask("pyobjects", str(target.pid), "--top=all")["rows"]}
    # Any interpreter has modules, and a dict for each of them.
    assert found["dict"]["count"] > found["module"]["count"] > 5 and found["str"]["own"] > 0
