"""An internal error of gdbheap about one of several processes: one line reports it, and the other processes are
answered."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import pytest

from gdbheap.commands import export as export_command
from gdbheap.export import table_export as export
from gdbheap.export.source import Source
from gdbheap.processes import accounts, family, heaps
from gdbheap.sampling import sampled_process, sampler

FAULT = "a fault of gdbheap (ValueError)"


def _fails(*_arguments: object) -> Any:
    raise ValueError("of one")


@pytest.fixture
def pids(rng: random.Random) -> list[int]:
    """Return the ids of three processes; the error happens in the second."""
    return rng.sample(range(2, 1 << 22), 3)


def test_export(pids: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Check a table that cannot be made, and one that cannot be written."""
    looks: list[Any] = [SimpleNamespace(tables={}, identity={"pid": pid, "core": None}) for pid in pids]
    sources = [Source(str(pid), lambda *_wanted, look=look: look) for pid, look in zip(pids, looks)]
    sources[1] = Source(str(pids[1]), _fails)
    missed: list[str] = []
    options: Any = SimpleNamespace(tables=None, edges=False)
    assert list(export_command._gathered(sources, options, missed)) == [looks[0], looks[2]]
    assert missed == [f"{pids[1]}: {FAULT}"]

    monkeypatch.setattr(export, "_in_parts", lambda look, *_rest: _fails() if look is looks[0] else [])
    parts: Any = ["pid"]
    found = export.export(looks, "/folder", "csv", parts)
    assert found.look_count == 2 and found.left_out == [f"process {pids[0]}: {FAULT}"] and not found.ok
    with pytest.raises(ValueError, match="of one"):
        export.export(looks[:1], "/folder", "csv", parts)


def test_ps(pids: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that the heaps of the other processes are summed."""

    def look(pid: int, *_rest: object) -> Any:
        return _fails() if pid == pids[1] else SimpleNamespace(is_there=True)

    monkeypatch.setattr(heaps, "running", lambda pid: SimpleNamespace(pid=pid, start=0))
    monkeypatch.setattr(heaps, "started_at", look)
    monkeypatch.setattr(heaps, "stopped", _Stopped)
    monkeypatch.setattr(heaps, "Heap", lambda _process: None)
    monkeypatch.setattr(heaps, "heap_use", lambda _heap: heaps.HeapUse(1, 2, 3, 4, None))
    programs = [accounts.ProgramRow(0, 0, 0, 0, str(pid), None, 1, [pid]) for pid in pids]
    missed: list[str] = []
    found = heaps.with_heaps(programs, None, missed)
    assert [one.heap.looked for one in found if one.heap is not None] == [1, 0, 1]
    assert missed == [f"process {pids[1]}: {FAULT}"]


class _Stopped:
    """A stopped process."""

    def __init__(self, *_arguments: object, **_options: object) -> None:
        pass

    def __enter__(self) -> Any:
        return SimpleNamespace(refusal=None)

    def __exit__(self, *_error: object) -> None:
        pass


def test_processes(pids: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that the process of the internal error has a note in its row."""
    monkeypatch.setattr(family, "_prepared", _fails)
    member = family.MemberProcess(pids[1], pids[0], "evil", 1, 1, 1, 0)
    looks: Any = SimpleNamespace(held={}, beside={})
    assert family._looked(member, looks).note == FAULT


def test_record(pids: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that the process is no longer sampled."""

    class Watched:
        """A process that is sampled."""

        def __init__(self, pid: int, _limit: float | None, may_be_traced: bool) -> None:
            self.pid, self.found, self.may_be_traced = pid, None, may_be_traced

        def usage(self) -> Any:
            """Return the process's memory use."""
            return _fails() if self.pid == pids[1] else SimpleNamespace()

        def look(self, _usage: object) -> None:
            """Find no change."""

        def sample(self, *_arguments: object) -> Any:
            """Return a sample."""
            return SimpleNamespace(kind="sample", pid=self.pid)

    monkeypatch.setattr(sampler, "SampledProcess", Watched)
    programs: Any = SimpleNamespace(pids=[], now=lambda: pids, folder=lambda pid: pid, may_come=False)
    rounds = sampler.Sampler(programs)
    found: list[Any] = list(rounds.take())
    assert [(row.kind, row.pid) for row in found] == list(zip(("sample", "failed", "sample"), pids))
    assert found[1].reason == FAULT and rounds.failed
    for _ in range(3):
        # The same holds after processes were searched for again.
        rounds._search = sampled_process.Pacer()
        assert [row.pid for row in rounds.take()] == [pids[0], pids[2]]


def test_books(monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that a process whose allocators cannot be found is sampled with the kernel's figures."""
    monkeypatch.setattr(sampled_process, "libraries_of", lambda _folder: frozenset())
    one: Any = object.__new__(sampled_process.SampledProcess)
    one.folder, one._check_memory, one._described, one._memory = None, _fails, dict, object
    assert one._look().malloc is None and one.refused == FAULT
