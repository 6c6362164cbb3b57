"""Files that are replaced while gdbheap reads them: the file that was checked is the one that is read."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.programs import c_program, gdbheap, running

from gdbheap import _native
from gdbheap.answers.accounting.records import to_json
from gdbheap.errors import UsageError
from gdbheap.files import open_to_read
from gdbheap.snapshots import file as snapshots
from gdbheap.targets import core as cores
from gdbheap.targets.core import Core
from gdbheap.tracing.call_stacks import END, call_stacks
from gdbheap.tracing.call_stats import call_stats
from gdbheap.tracing.replay import planned

Plant = Callable[[Path, Path], None]


def plant_pipe(_other: Path, path: Path) -> None:
    """Make a pipe."""
    os.mkfifo(path)


def plant_device(_other: Path, path: Path) -> None:
    """Make a link to a device that never ends."""
    path.symlink_to("/dev/zero")


def plant_link(other: Path, path: Path) -> None:
    """Make a link to another file, which its maker may not read."""
    path.symlink_to(other)


PLANTS = [plant_pipe, plant_device, plant_link]


@contextlib.contextmanager
def swapping(path: Path, plant: Plant) -> Iterator[Callable[[], None]]:
    """Yield a function that gives the name of a file to something else."""
    other, beside = path.with_suffix(".other"), path.with_suffix(".beside")
    other.write_bytes(path.read_bytes()[::-1])
    plant(other, beside)
    # An open of a pipe that nobody has open would wait for ever.
    held = os.open(beside, os.O_RDWR) if plant is plant_pipe else None
    try:
        yield lambda: os.replace(beside, path) if os.path.lexists(beside) else None
    finally:
        if held is not None:
            os.close(held)


def before(act: Callable[..., Any], swap: Callable[[], None]) -> Callable[..., Any]:
    """Return a function that swaps the names at the last moment before ``act`` begins."""

    def acting(*arguments: Any, **named: Any) -> Any:
        swap()
        return act(*arguments, **named)

    return acting


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Return the log of a program's calls, with stacks."""
    file = tmp_path / "calls.log"
    done = gdbheap("trace", "--stacks=1", "-o", str(file), "--", sys.executable, "-S", "-c", "[bytes(600)] * 9")
    assert done.returncode == 0, done.stderr
    return file


def plan_of(path: str) -> Any:
    """Return the plan of a replay."""
    with planned(path, None, False, False) as job:
        return job.answer([], False)


LOG_READERS: list[Callable[[str], Any]] = [
    lambda path: call_stats(path, None), lambda path: call_stacks(path, None, END), plan_of,
]  # fmt: skip


def test_logs_whose_names_are_swapped(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = log.read_bytes()
    for read in LOG_READERS:
        expected = to_json(read(str(log)))
        for plant in PLANTS:
            with swapping(log, plant) as swap, monkeypatch.context() as patched:
                for name in ("call_stats", "plan_calls", "live_stacks"):
                    patched.setattr(_native, name, before(getattr(_native, name), swap))
                assert to_json(read(str(log))) == expected
                assert not log.is_file() or log.is_symlink()
            log.unlink()
            log.write_bytes(whole)


class SwappedSpace:
    """Makes the space of a core, but first swaps the core's name."""

    def __init__(self, swap: Callable[[], None]) -> None:
        self.for_core = before(_native.Space.for_core, swap)


@pytest.mark.parametrize("plant", PLANTS)
def test_cores_whose_names_are_swapped(tmp_path: Path, plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    with running(c_program("idle"), tmp_path) as target:
        path = target.gcore()
    expected = Core(str(path))
    with swapping(path, plant) as swap:
        monkeypatch.setattr(cores, "Space", SwappedSpace(swap))
        found = Core(str(path))
    assert not path.is_file() or path.is_symlink()
    spans = [(one.start, min(one.end, one.start + 4096)) for one in expected.mappings]
    assert spans and len(found.mappings) == len(expected.mappings)
    for start, end in spans:
        assert found.space.read_available(start, end - start) == expected.space.read_available(start, end - start)


@pytest.mark.parametrize("plant", PLANTS)
def test_snapshots_whose_names_are_swapped(tmp_path: Path, plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "one.heap"
    with running(c_program("idle"), tmp_path) as target:
        assert gdbheap("snapshot", str(target.pid), str(path), "--owners").returncode == 0
    expected = snapshots.read(str(path)).snapshot
    with swapping(path, plant) as swap:
        monkeypatch.setattr(snapshots, "_contents", before(snapshots._contents, swap))
        assert snapshots.read(str(path)).snapshot == expected
    assert not path.is_file() or path.is_symlink()


def test_kernels_own_files_are_no_logs(tmp_path: Path) -> None:
    (tmp_path / "calls.log").symlink_to("/proc/version")
    with pytest.raises(UsageError, match="in a file system of the kernel"):
        open_to_read(str(tmp_path / "calls.log"))
