"""Limits on memory, by made-up roots: of nested control groups, of the machine, of this process; and who traces."""

from __future__ import annotations

import os
import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gdbheap.host import headroom
from gdbheap.host.cgroup import find_group
from gdbheap.refusals import refusal

MIB = 1 << 20
FILES = {2: ("memory.current", "memory.max"), 1: ("memory.usage_in_bytes", "memory.limit_in_bytes")}
# The kernel's own words for no limit.
NO_LIMIT = {2: "max", 1: "9223372036854771712"}


class Root:
    """A made-up /proc and /sys/fs/cgroup."""

    def __init__(self, folder: Path) -> None:
        self.proc, self.groups = folder / "proc", folder / "cgroup"

    def write(self, name: str, text: object) -> None:
        """Write a file below /proc."""
        (self.proc / name).parent.mkdir(parents=True, exist_ok=True)
        (self.proc / name).write_text(f"{text}\n")

    def nest(self, version: int, pid: str, names: list[str], limits: list[int | None], uses: list[int]) -> None:
        """Put a process into the last of nested groups; the first name is that of the root, which has no limit."""
        path = "/".join(names)
        self.write(f"{pid}/cgroup", f"0::/{path}" if version == 2 else f"4:memory:/{path}")
        folder = self.groups if version == 2 else self.groups / "memory"
        for name, limit, used in zip(names, limits, uses):
            folder /= name
            folder.mkdir(parents=True, exist_ok=True)
            current, most = FILES[version]
            (folder / current).write_text(f"{used}\n")
            (folder / most).write_text(f"{NO_LIMIT[version] if limit is None else limit}\n")

    def use(self, patch: pytest.MonkeyPatch) -> None:
        """Let headroom read this root."""
        groups, real = str(self.groups), headroom.group_folders
        patch.setattr(headroom, "PROC", str(self.proc))
        patch.setattr(
            headroom, "group_folders", lambda process, controller: real(process, controller, str(self.proc), groups)
        )


@pytest.fixture
def root(tmp_path: Path) -> Root:
    """Return an empty root."""
    return Root(tmp_path)


@pytest.mark.parametrize("version", FILES)
def test_the_smallest_limit_of_nested_groups(version: int, root: Root, rng: random.Random) -> None:
    """Check that of any limits of nested groups the smallest one is reported, with the group that sets it: the own
    group's, one above it, or none."""
    for number in range(40):
        depth = rng.randrange(1, 5)
        names = [f"{number}-{level}" for level in range(depth)]
        limits = [rng.choice([None, rng.randrange(1, 900) * MIB]) for _ in names]
        uses = sorted((rng.randrange(900) * MIB for _ in names), reverse=True)
        root.nest(version, str(number), names, limits, uses)
        found = find_group(str(number), str(root.proc), str(root.groups))
        assert found is not None and (found.version, found.current) == (version, uses[-1])
        known = [(limit, "/" + "/".join(names[: level + 1])) for level, limit in enumerate(limits) if limit is not None]
        least = min((limit for limit, _path in known), default=None)
        assert found.max == least
        assert (found.max_of is None) == (least is None) and (least is None or (least, found.max_of) in known)


@pytest.mark.parametrize("version", FILES)
def test_what_is_left(version: int, root: Root, rng: random.Random, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check what a process can still get: the least of the machine's and of each group's, never below 0; and half of
    it for a copy."""
    root.use(monkeypatch)
    monkeypatch.setattr(headroom, "_address_space_left", lambda: 1 << 50)
    for _ in range(40):
        names = ["a", "b", "c"][: rng.randrange(1, 4)]
        limits = [rng.choice([None, rng.randrange(1, 900) * MIB]) for _ in names]
        uses = [rng.randrange(900) * MIB for _ in names]
        root.nest(version, "self", names, limits, uses)
        available = rng.randrange(1, 900) * MIB
        root.write("meminfo", f"MemTotal: {1 << 20} kB\nMemAvailable: {available >> 10} kB")
        of_groups = [limit - used for limit, used in zip(limits, uses) if limit is not None]
        left = max(0, min([available, *of_groups]))
        assert headroom.memory_left("self") == left
        assert headroom.room_for_copy() == left // 2
        assert headroom.copy_fits(left // 2) and not headroom.copy_fits(left // 2 + 1)
        least = min((limit for limit in limits if limit is not None), default=None)
        assert headroom.group_limit("self") == least


def test_the_address_space_limits_a_copy(root: Root, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that RLIMIT_AS counts like the machine's memory."""
    root.use(monkeypatch)
    root.write("meminfo", f"MemAvailable: {1 << 20} kB")
    monkeypatch.setattr(headroom, "_address_space_left", lambda: 100 * MIB)
    assert headroom.room_for_copy() == 50 * MIB


def test_what_may_be_committed(root: Root, rng: random.Random, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that the commit limit counts only where the kernel refuses to exceed it (vm.overcommit_memory 2)."""
    root.use(monkeypatch)
    for mode in ("0", "1", "2"):
        root.write("sys/vm/overcommit_memory", mode)
        limit, committed = (rng.randrange(1, 1 << 30) for _ in range(2))
        root.write("meminfo", f"CommitLimit: {limit} kB\nCommitted_AS: {committed} kB")
        assert headroom.commit_left() == (max(0, limit - committed) << 10 if mode == "2" else None)


def test_numbers_of_processes_and_mappings(root: Root, rng: random.Random, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that the least limit of processes counts, and the kernel's limit of mappings."""
    root.use(monkeypatch)
    monkeypatch.setattr(os, "getuid", lambda: 0)
    most, running = rng.randrange(1000, 2000), rng.randrange(100, 900)
    root.write("loadavg", f"0.1 0.2 0.3 2/{running} 4711")
    root.write("sys/kernel/pid_max", most)
    root.write("sys/kernel/threads-max", 2 * most)
    root.write("self/cgroup", "0::/a/b")
    for name, limit, used in (("a", most, 10), ("a/b", "max", 5)):
        (root.groups / name).mkdir(parents=True)
        (root.groups / name / "pids.max").write_text(f"{limit}\n")
        (root.groups / name / "pids.current").write_text(f"{used}\n")
    assert headroom.processes_left("self") == most - 10
    assert headroom.threads_left() == min(most - running, most - 10)
    assert headroom.mappings_limit() == headroom.MAX_MAP_COUNT
    root.write("sys/vm/max_map_count", most)
    assert headroom.mappings_limit() == most


@pytest.mark.parametrize("who", ["nobody", "gdbheap", "another"])
def test_who_traces(who: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that only another program counts as the tracer of a process, not gdbheap itself."""
    tracer = {"nobody": 0, "gdbheap": os.getpid(), "another": os.getppid()}[who]
    monkeypatch.setattr(refusal, "_status", lambda _folder, _task=None: {"TracerPid": str(tracer)})
    monkeypatch.setattr(refusal, "_tracer", lambda _folder, _status: tracer)
    folder: Any = SimpleNamespace(pid=7)
    assert refusal.other_tracer(folder) == (tracer if who == "another" else 0)
