"""Sums, halves, limits and orders of made-up rows, against arithmetic that is written down here."""

from __future__ import annotations

import random
import re
import resource
from collections import Counter
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gdbheap.allocators.allocator import ExtentArena
from gdbheap.answers import doctor, retained
from gdbheap.answers.arenas import AllArenas, Arenas, Mmapped, Total
from gdbheap.processes import family
from gdbheap.processes.accounts import by_program

MIB = 1 << 20


def test_arenas_are_their_parts(rng: random.Random) -> None:
    """Check that an arena's bytes are its active, dirty and muzzy pages, those in use and those free are all of them,
    and the total is the sum of the rows."""
    others = []
    for index in range(20):
        active, dirty, muzzy, given = (rng.randrange(100) * MIB for _ in range(4))
        others.append(ExtentArena("jemalloc", "x", index, active, dirty, muzzy, given, rng.randrange(active + 1), 0))
    found: AllArenas = Arenas([], Mmapped(0, 0), Total(0, 0), others=others).as_document()
    for row in found.rows:
        assert row.system == (row.active or 0) + (row.dirty or 0) + (row.muzzy or 0) == row.in_use + row.free
    for name in ("system", "in_use", "free"):
        assert getattr(found.total, name) == sum(getattr(row, name) for row in found.rows)


def test_a_path_that_half_of_the_examples_share(rng: random.Random, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that the path of the last example is an expression if at least half of the examples have the same, apart
    from subscripts."""
    monkeypatch.setattr(retained, "in_words", lambda way: f"words of {way.expression}")
    for _ in range(100):
        names = [rng.choice(["a", "b", None]) for _ in range(rng.randrange(1, 7))]
        ways = [None if name is None else f"{name}[{rng.randrange(9)}]" for name in names]
        paths: Any = SimpleNamespace(
            references=SimpleNamespace(graph=SimpleNamespace(chain=lambda number: number)),
            path=lambda number, ways=ways: SimpleNamespace(expression=ways[number]),
        )
        path, _words = retained._common_way(paths, list(range(len(ways))))
        is_shared = names[-1] is not None and 2 * names.count(names[-1]) >= len(names)
        assert (path is not None) == is_shared and (path is None or path.startswith(names[-1] or "-")), (names, path)


@pytest.mark.parametrize("size", [0, 1])
def test_files_that_are_there_or_not(size: int, tmp_path: Path) -> None:
    """Check the three states of a file: it can be opened, it does not exist, or it is refused."""
    plain, loop = tmp_path / "plain", tmp_path / "loop"
    plain.write_bytes(b"x")
    loop.symlink_to(loop)
    paths = {"ok": plain, "absent": tmp_path / "none", "refused": loop}
    states = {name: doctor._opened("file", str(path), size) for name, path in paths.items()}
    expected = {"ok": doctor.OK, "absent": doctor.ABSENT, "refused": doctor.REFUSED}
    assert {name: check.state for name, check in states.items()} == expected
    assert all(check.detail == "" if name == "ok" else check.detail for name, check in states.items())


def account(pid: int, name: str, script: str | None, memory: Any) -> Any:
    """Return the kernel's figures of a process that runs a program, or Python with a script."""
    words = [f"/usr/bin/{name}", *([] if script is None else [script])]
    command = "".join(f"{word}\0" for word in words).encode()
    exe = f"/usr/bin/{name}".encode()
    return SimpleNamespace(pid=pid, parent=1, name=name.encode(), exe=exe, command=command, memory=memory, error=0)


def figures(rng: random.Random, number: int) -> Any:
    """Return a process's memory in a kernel that knows PSS; its huge pages are in none of the other figures."""
    private, shared = rng.randrange(1, 99) * 1024, rng.randrange(99) * 1024
    return SimpleNamespace(
        rss=private + shared, pss=private + shared // 2, proportional=1, private=private, shared=shared,
        private_huge=rng.choice([0, 2 * MIB]), shared_huge=rng.choice([0, 2, 4]) * MIB, anonymous=private, lazy=0,
        swap=0, swap_share=None, fingerprint=number,
    )  # fmt: skip


def test_programs_are_the_sums_of_processes(rng: random.Random) -> None:
    """Check the figures of programs: huge pages that processes of a program share count once, and the total is the sum
    of the rows."""
    for _ in range(50):
        rows = [account(pid, rng.choice("abc"), None, figures(rng, pid)) for pid in range(10, 10 + rng.randrange(1, 9))]
        found = by_program([*rows, account(9, "refused", None, None)])
        for program in found.rows:
            own = [row.memory for row in rows if row.name.decode() == program.name]
            half = 512 * sum(one.proportional for one in own)
            assert program.private == sum(one.private + one.private_huge for one in own)
            huge = max(one.shared_huge for one in own)
            assert program.shared == sum(one.pss - one.private for one in own) + half + huge
            assert program.ram == program.private + program.shared and program.count == len(own)
        assert found.refused == 1 and found.total.ram == sum(program.ram for program in found.rows)
        assert [program.ram for program in found.rows] == sorted((one.ram for one in found.rows), reverse=True)


@pytest.mark.parametrize("pattern", ["serv", "er", "^server$", "app", r"\.py", "^app", "none", "^python3"])
def test_programs_that_a_pattern_matches(pattern: str, rng: random.Random) -> None:
    """Check that a pattern matches anywhere in the name of a program or of its script, and nothing else."""
    names = [("server", None), ("observer", None), ("python3", "/srv/app.py"), ("python3", "/srv/work_app.py")]
    rows = [account(pid, *name, figures(rng, pid)) for pid, name in enumerate(names, 10)]
    matching = {
        10 + place
        for place, (name, script) in enumerate(names)
        if re.search(pattern, name) or re.search(pattern, Path(script or "").name)
    }
    found = by_program(rows, re.compile(pattern))
    assert {pid for program in found.rows for pid in program.pids} == matching


def test_what_loading_before_the_fork_saves(rng: random.Random) -> None:
    """Check the savings: every page of values that several workers have and their parent lacks is there once instead of
    several times, and so are the objects that all workers have in addition to the parent's."""
    for _ in range(50):
        looks = family._Looks({}, None)
        least = most = workers = 0
        for parent in (1, 2):
            types = ["str", "bytes", "dict"]
            had: Counter[str] = Counter({kind: rng.randrange(50) for kind in types})
            marks = {bytes([parent, number]) for number in range(rng.randrange(4))}
            looks.parents[parent] = marks, had
            forked = [10 * parent + place for place in range(rng.randrange(4))]
            for pid in forked:
                looks.parent_of[pid] = parent
                looks.objects[pid] = Counter({kind: had[kind] + rng.randrange(-5, 90) for kind in types})
                looks.marks[pid] = {bytes([parent, number]) for number in rng.sample(range(12), rng.randrange(9))}
            for mark in {mark for pid in forked for mark in looks.marks[pid]} - marks:
                copies = sum(mark in looks.marks[pid] for pid in forked)
                least += max(0, copies - 1) * resource.getpagesize()
            for kind in types if forked else []:
                added = min(looks.objects[pid][kind] for pid in forked) - had[kind]
                most += max(0, added) * (len(forked) - 1)
            workers += len(forked) if len(forked) > 1 else 0
        found = family._preload(looks)
        assert (found.least_saved, found.workers) == (least, workers)
        assert found.most_saved == (most if most > least else 0)


def test_a_parent_is_stopped_for_no_longer_than_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that the stops of one parent add up: each next one may take only the rest, and none follows the last."""
    now, allowed = [0.0], list[float]()

    @contextmanager
    def stopped(_folder: Any, limit: float, preparation: Any) -> Any:
        allowed.append(limit)
        now[0] += 0.3
        yield SimpleNamespace(cut_short=None)

    monkeypatch.setattr(family, "stopped", stopped)
    monkeypatch.setattr(family, "Comparison", lambda _heap: SimpleNamespace(read=lambda _other: False))
    monkeypatch.setattr(family, "time", SimpleNamespace(monotonic=lambda: now[0]))
    looks = family._Looks({}, 1.0)
    ready: Any = SimpleNamespace(folder=SimpleNamespace(pid=7))
    member: Any = SimpleNamespace(parent_pid=7, pid=8)
    monkeypatch.setattr(family, "replace", lambda found, **more: SimpleNamespace(**{**vars(found), **more}))
    heap: Any = SimpleNamespace(target=SimpleNamespace(cut_short=None))
    notes = [getattr(family._compared(member, heap, ready, looks), "note", None) for _ in range(6)]
    assert [round(limit, 3) for limit in allowed] == [1.0, 0.7, 0.4, 0.1]
    assert notes[:3] == [None] * 3 and all(note == family.NOT_COMPARED.format(7, 1.0) for note in notes[3:])
