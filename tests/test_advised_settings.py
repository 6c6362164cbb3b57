"""Settings that findings about other mallocs advise: a program started with them does not keep the promised memory.

The memory is compared by RSS, and by the counts of jemalloc and tcmalloc themselves.
"""

from __future__ import annotations

import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from support import jemallocs, kernel, mimallocs, programs, tcmallocs
from support.programs import Running, ask, gdbheap, running
from support.tables import program

KIB, MIB = 1 << 10, 1 << 20
UNUSED = {
    "jemalloc-unused": jemallocs.newest,
    "tcmalloc-unused": lambda: tcmallocs.library("tcmalloc_minimal"),
    "mimalloc-empty": mimallocs.newest,
}
CACHED = {name: UNUSED[f"{name}-unused"] for name in ("jemalloc", "tcmalloc")}
# With this setting, all memory outside caches is returned.
AT_ONCE = {"TCMALLOC_AGGRESSIVE_DECOMMIT": "1"}
ARROW = (
    "import ctypes, pyarrow, signal, sys\n"
    "pool = pyarrow.jemalloc_memory_pool()\n"
    "kept = [pyarrow.allocate_buffer(900_000, pool) for _ in range(40)]\n"
    "for one in kept: ctypes.memset(one.address, 1, one.size)\n"
    "del kept, one\n"
    "print(flush=True)\n"
    "sys.stdin.readline()\n"
    "pool.release_unused()\n"
    "print(flush=True)\n"
    "signal.pause()\n"
)


def named(target: Running, name: str) -> dict[str, Any] | None:
    """Return the finding with this name; None if there is none."""
    rows = [row for row in ask("", str(target.pid))["findings"] if row["id"] == name]
    return dict(rows[0]) if rows else None


def told(finding: dict[str, Any], settings: dict[str, str]) -> dict[str, str]:
    """Return the settings with those that a finding advises added.

    One variable may have several, separated by commas.
    """
    joined = dict(settings)
    for name, value in finding["environment"].items():
        joined[name] = f"{joined[name]},{value}" if name in joined else value
    return joined


@pytest.mark.parametrize("name", UNUSED)
def test_nothing_unused(name: str, rng: random.Random, tmp_path: Path) -> None:
    """Check that a program with the advised setting returns unused memory without any call, and that gdbheap recognizes
    the setting.
    """
    command, settings = program(1, 20_000, rng, tmp_path), {"LD_PRELOAD": UNUSED[name]()}
    with running(command, tmp_path, settings) as target:
        target.go_on("drop")
        found, before = named(target, name), kernel.rollup(target.pid)[0]
        assert found is not None and found["environment"]
        words = gdbheap("check-advice", str(target.pid)).stdout
    (setting,) = (f"{variable}={value}" for variable, value in found["environment"].items())
    assert f"  {setting}: {name}" in words and next(iter(found["environment"])) in found["advice"]
    with running(command, tmp_path, told(found, settings)) as target:
        target.go_on("drop")
        deadline, least = time.monotonic() + programs.PATIENCE, before - 0.85 * found["bytes"]
        # jemalloc gives pages back over a second.
        while kernel.rollup(target.pid)[0] > least and time.monotonic() < deadline:
            time.sleep(0.1)
        left = kernel.rollup(target.pid)[0]
        advice = ask("check-advice", str(target.pid))
        words = gdbheap("check-advice", str(target.pid)).stdout
    assert left <= least, (before, left, found)
    (variable,) = found["environment"]
    assert {row["name"]: row["value"] for row in advice["other_settings"]}[variable] == found["environment"][variable]
    assert f"{setting} is set; only " in words


def cached(folder: Path) -> int:
    """Return the bytes in caches by the allocator's own count."""
    return int((folder / "cached").read_text())


@pytest.mark.parametrize("name", CACHED)
def test_smaller_caches(name: str, rng: random.Random, tmp_path: Path) -> None:
    """Check that the promised bytes are in caches by the allocator's own count, and that the setting leaves far fewer
    there."""
    command = programs.c_program("many_arenas", rng.getrandbits(30), 8, 2000, tmp_path / "cached")
    settings = {"LD_PRELOAD": CACHED[name](), "MALLOC_CONF": "narenas:8,dirty_decay_ms:0", **AT_ONCE}
    with running(command, tmp_path, settings) as target:
        found, said = named(target, f"cached-{name}"), cached(tmp_path)
        before = kernel.rollup(target.pid)[0]
    # A part of large blocks that were never written is not resident.
    assert found is not None and found["is_doubtful"] and 0.9 * said <= found["bytes"] <= said + 64 * KIB, (found, said)
    assert found["figures"]["caches"] >= 8
    with running(command, tmp_path, told(found, settings)) as target:
        after = cached(tmp_path)
        freed = before - kernel.rollup(target.pid)[0]
        heeded = ask("check-advice", str(target.pid))["heeded"]
    assert after <= 0.75 * said and freed >= 0.75 * (said - after), (said, after, freed)
    assert set(heeded) <= {f"cached-{name}"}


def test_fewer_arenas(rng: random.Random, tmp_path: Path) -> None:
    """Check that RSS falls by the promised bytes with a quarter of the arenas. The arenas' own memory is freed too."""
    command = programs.c_program("many_arenas", rng.getrandbits(30), 160, 60, tmp_path / "cached")
    settings = {
        "LD_PRELOAD": jemallocs.newest(),
        "MALLOC_CONF": "narenas:160,tcache:false,dirty_decay_ms:0,muzzy_decay_ms:0",
    }
    with running(command, tmp_path, settings) as target:
        found, before = named(target, "jemalloc-arenas"), kernel.rollup(target.pid)[0]
    assert found is not None and found["environment"] == {"MALLOC_CONF": "narenas:40"}
    arenas, wanted = found["figures"]["arenas"], found["figures"]["wanted"]
    assert (arenas, wanted) == (160, 40)
    with running(command, tmp_path, told(found, settings)) as target:
        freed = before - kernel.rollup(target.pid)[0]
        left = named(target, "jemalloc-arenas")
    assert 0.9 * found["bytes"] <= freed <= 1.1 * found["bytes"] + (arenas - wanted) * 192 * KIB, (found, freed)
    assert left is None or left["bytes"] < found["bytes"]


def test_arrows_own(tmp_path: Path) -> None:
    """Check the advice about Arrow's jemalloc, whose functions cannot be called and whose variable has its own name.

    The jemalloc returns unused memory if the advised variable is set; a call of Arrow's pool does not return it.
    """
    if subprocess.run([sys.executable, "-c", "import pyarrow"], check=False, capture_output=True).returncode:
        pytest.skip("no pyarrow here")
    command = [sys.executable, "-c", ARROW]
    with running(command, tmp_path, {"JE_ARROW_MALLOC_CONF": "dirty_decay_ms:-1"}) as target:
        found, before = named(target, "jemalloc-unused"), kernel.rollup(target.pid)[0]
        assert found is not None and "mallctl" not in found["advice"]
        target.go_on()
        assert abs(before - kernel.rollup(target.pid)[0]) < found["bytes"] // 10
        assert list(found["environment"]) == ["JE_ARROW_MALLOC_CONF"]
        others = {row["name"]: row["value"] for row in ask("check-advice", str(target.pid))["other_settings"]}
        assert others["JE_ARROW_MALLOC_CONF"] == "dirty_decay_ms:-1"
    with running(command, tmp_path, found["environment"]) as target:
        deadline = time.monotonic() + programs.PATIENCE
        while (left := kernel.rollup(target.pid)[0]) > before - 0.9 * found["bytes"] and time.monotonic() < deadline:
            time.sleep(0.1)
    assert left <= before - 0.9 * found["bytes"], (before, left, found)
