"""``heap check-advice``: the settings a program was started with, by the kernel's word, and those in force."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from programs import KERNEL_CORE, PROCESS, ask, c_program, gdbheap, running

NAMES = {
    "MALLOC_MMAP_THRESHOLD_": "mmap_threshold",
    "MALLOC_TRIM_THRESHOLD_": "trim_threshold",
    "MALLOC_ARENA_MAX": "arena_max",
}


def by_name(answer: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return its settings by their names."""
    return {row["name"]: row for row in answer["settings"]}


@pytest.mark.parametrize("form", [PROCESS, KERNEL_CORE])
def test_settings_that_took(form: str, rng: random.Random, tmp_path: Path) -> None:
    """What /proc/PID/environ has is what the answer has, and mp_ has the same; others are not set."""
    given = {name: str(rng.randrange(1, 300) * 4096) for name in rng.sample(sorted(NAMES), rng.randrange(1, 4))}
    with running(c_program("faults", rng.getrandbits(30), "healthy", tmp_path / "none"), tmp_path, given) as target:
        environ = Path(f"/proc/{target.pid}/environ").read_bytes().split(b"\0")
        answer = ask("check-advice", target.as_form(form))
    for name, field in NAMES.items():
        row = by_name(answer)[name]
        assert row["value"] == given.get(name) and row["field"] == field
        assert (f"{name}={row['value']}".encode() in environ) == (name in given)
        assert row["took"] is (True if name in given else None)
        assert name not in given or (row["in_force"] == int(given[name]) and row["how"] == "set")
    assert answer["environment"]


def test_before_and_after_advice(rng: random.Random, tmp_path: Path) -> None:
    """Holes of large buffers: the setting is advised; in the program that was started with it, it took, and there are
    no such holes."""
    command = c_program("faults", rng.getrandbits(30), "large", tmp_path / "none")
    with running(command, tmp_path) as target:
        (finding,) = (row for row in ask("", str(target.pid))["findings"] if row["id"] == "large-chunks")
        before = ask("check-advice", str(target.pid))
    assert finding["environment"] == {"MALLOC_MMAP_THRESHOLD_": "131072"}
    assert [row["id"] for row in before["findings"]] == ["large-chunks"]
    row = by_name(before)["MALLOC_MMAP_THRESHOLD_"]
    assert (row["value"], row["took"], row["how"], row["bytes"]) == (None, None, "risen", finding["bytes"])
    with running(command, tmp_path, finding["environment"]) as target:
        after = by_name(ask("check-advice", str(target.pid)))["MALLOC_MMAP_THRESHOLD_"]
        words = gdbheap("check-advice", str(target.pid)).stdout
    assert (after["took"], after["in_force"], after["bytes"]) == (True, 128 << 10, 0)
    assert "MALLOC_MMAP_THRESHOLD_=131072 is set and in force: mmap_threshold is 128.0 KiB" in words


def test_settings_that_did_not_take(rng: random.Random, tmp_path: Path) -> None:
    """A program that calls mallopt() itself has another value in force than it was started with."""
    command = c_program("faults", rng.getrandbits(30), "lowered", tmp_path / "none")
    with running(command, tmp_path, {"MALLOC_TRIM_THRESHOLD_": "4194304"}) as target:
        row = by_name(ask("check-advice", str(target.pid)))["MALLOC_TRIM_THRESHOLD_"]
    assert (row["value"], row["in_force"], row["took"]) == ("4194304", 128 << 10, False)


def test_tunables(rng: random.Random, tmp_path: Path) -> None:
    """A tunable says the same as its variable."""
    tunables = {"GLIBC_TUNABLES": "glibc.malloc.arena_max=3:glibc.malloc.mmap_threshold=0x50000"}
    with running(c_program("faults", 1, "healthy", tmp_path / "none"), tmp_path, tunables) as target:
        rows = by_name(ask("check-advice", str(target.pid)))
    arenas, threshold = rows["MALLOC_ARENA_MAX"], rows["MALLOC_MMAP_THRESHOLD_"]
    assert (arenas["by"], arenas["in_force"], arenas["took"]) == ("GLIBC_TUNABLES", 3, True)
    assert (threshold["by"], threshold["in_force"], threshold["took"]) == ("GLIBC_TUNABLES", 0x50000, True)
