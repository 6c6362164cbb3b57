"""``heap duplicates``, ``heap pyobjects --by`` and ``--group`` against a program's own counts of its random values."""

from __future__ import annotations

import collections
import json
import random
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from support.library import heap_of
from support.programs import FORMS, RELEASE, SOURCES, ask, gdbheap, interpreter_of_release, running, since

from gdbheap.answers.duplicates import by_value, duplicates
from gdbheap.answers.fill import fills
from gdbheap.answers.groups import _AttributeReader, groups
from gdbheap.answers.tallies import tallies
from gdbheap.heap import Heap
from gdbheap.report.text.style import Style
from gdbheap.report.words.groups import render
from gdbheap.targets.process import Process, stopped

pytestmark = pytest.mark.cases(3)

COUNT = 60
BY = ("--by=line", "--by=length")


def started(release: str, rng: random.Random, folder: Path) -> list[str]:
    """Return the command that runs the program; its truth is written to the folder."""
    python = interpreter_of_release(release).executable
    return [python, "-s", str(SOURCES / "equal_values.py"), str(rng.getrandbits(32)), str(COUNT), str(folder / "truth")]


def truth_in(folder: Path) -> dict[str, Any]:
    """Return the output of the program."""
    found: dict[str, Any] = json.loads((folder / "truth").read_text())
    return found


def check_duplicates(heap: Heap, truth: dict[str, Any]) -> None:
    """Check that each value that the program has twice is one row with its copies, that a single value has none, and
    that the rows add up to the sums."""
    answer = duplicates(heap, None, None)
    found = {row.address: row for row in answer.rows}
    assert len(found) == answer.count
    for kind, copies, addresses in truth["values"]:
        rows = [found[address] for address in addresses if address in found]
        assert [(row.type, row.count) for row in rows] == ([(kind, copies)] if copies > 1 else [])
        assert not rows or (rows[0].address == addresses[0] and rows[0].saved < rows[0].bytes)
    sums = (sum(row.count for row in answer.rows), sum(row.saved for row in answer.rows))
    assert (answer.copies, answer.saved) == sums
    assert {one.type: one.saved for one in answer.types if one.saved} == {
        name: sum(row.saved for row in answer.rows if row.type == name) for name in {row.type for row in answer.rows}
    }
    every = by_value(heap, None, None)
    assert {row.address: row.count for row in every.rows if row.count > 1} == {a: row.count for a, row in found.items()}
    assert every.count == sum(row.count for row in every.rows) and every.matching == len(every.rows)


def check_groups(heap: Heap, truth: dict[str, Any]) -> None:
    """Check the number of instances by the value of an attribute, in a dict, inline or in a slot."""
    for name, (counts, unset) in truth["groups"].items():
        answer = groups(heap, f"__main__.{name}", "group")
        by_text: dict[str | None, int] = collections.Counter()
        for text, count in zip(truth["texts"], counts):
            by_text[text] += count
        found = {row.value: row.count for row in answer.rows}
        assert found.pop(None, 0) == unset
        assert sorted(found.values()) == sorted(filter(None, by_text.values()))
        short = {text: count for text, count in by_text.items() if text and len(text) < 50 and count}
        assert short.items() <= found.items()
        assert answer.count == sum(counts) + unset


def check_fill(heap: Heap, truth: dict[str, Any]) -> None:
    """Check the room of byte arrays against their own report; lists are at least those of the program; tenths add
    up."""
    rows = {row.type: row for row in fills(heap, None).rows}
    room = truth["arrays"]
    arrays = rows["bytearray"]
    assert (arrays.count, arrays.items, arrays.room) == (len(room), sum(u for u, _ in room), sum(r for _, r in room))
    assert rows["list"].room - rows["list"].items >= sum(allocated - used for _, used, allocated in truth["lists"])
    for row in rows.values():
        assert sum(row.tenths) == row.count - row.empty - row.sharing and row.items <= row.room
    lengths = {row.key: row.count for row in tallies(heap, "length", "bytearray").rows}
    assert lengths == collections.Counter(truth["lengths"])


@pytest.mark.parametrize("release", since("3.6"))
def test_values_of_a_process(release: str, rng: random.Random, tmp_path: Path) -> None:
    """Check duplicates, groups and room, in every release's layouts."""
    with running(started(release, rng, tmp_path), tmp_path) as target:
        with heap_of(str(target.pid)) as heap:
            truth = truth_in(tmp_path)
            check_duplicates(heap, truth)
            check_groups(heap, truth)
            check_fill(heap, truth)
            by_size, by_module = (tallies(heap, key, None) for key in ("size", "module"))
            count = sum(row.live.count for row in heap.python.census.rows)
    assert (by_size.count, by_size.own) == (by_module.count, by_module.own)
    assert by_size.count == count


def has_texts(truth: dict[str, Any]) -> bool:
    """Return whether the program gave a text to any of its instances of Plain; there may be very few of these."""
    counts, _ = truth["groups"]["Plain"]
    return any(count and text.startswith("'") for text, count in zip(truth["texts"], counts))


@pytest.mark.parametrize("form", FORMS[1:])
def test_commands_on_a_core(form: str, rng: random.Random, tmp_path: Path) -> None:
    """Check that the commands answer the same for a core, name holders, and hide contents on request."""
    with running(started(RELEASE, rng, tmp_path), tmp_path) as target:
        core = target.as_form(form)
        answer = ask("duplicates", core, "--holders", "--top=5")
        grouped = ask("pyobjects", core, "--type=__main__.Plain", "--group=group")
        lines = [["duplicates", core, "--top=all"], ["pyobjects", core, "--by=value", "--top=all"]]
        lines += [["pyobjects", core, "--type=__main__.Plain", "--group=group"], ["pyobjects", core, "--by=fill"]]
        shown = [gdbheap(*line).stdout for line in lines]
        hidden = [gdbheap(*line, "--no-text").stdout for line in lines[:3]]
    truth = truth_in(tmp_path)
    assert len(answer["rows"]) == 5
    for row in answer["rows"]:
        assert row["held_by"] and row["held_by"][0]["type"]
    own = next(text[1:9] for text in truth["texts"] if text.startswith("'"))
    assert [own in text for text in shown] == [True, True, has_texts(truth), False]
    assert not any(own in text for text in hidden)
    assert sum(row["count"] for row in grouped["rows"]) == grouped["total"]["count"]


def sessions(rng: random.Random, folder: Path, count: int) -> list[str]:
    """Return the command that runs a program with ``count`` instances, with inline values or with dicts."""
    python = interpreter_of_release(RELEASE).executable
    return [python, "-s", str(SOURCES / "sessions.py"), str(rng.getrandbits(32)), str(count), str(folder / "truth")]


GROUPED = ("--type=__main__.Session", "--group=tenant_id")


def test_groups_of_many(rng: random.Random, tmp_path: Path) -> None:
    """Check that 200,000 instances, each with its own text, are counted by value as the program counts them."""
    with running(sessions(rng, tmp_path, 200_000), tmp_path) as target:
        answer = ask("pyobjects", str(target.pid), *GROUPED, "--max-stop=0")
        shown = gdbheap("pyobjects", str(target.pid), *GROUPED, "--max-stop=0", "--top=3").stdout
    truth = truth_in(tmp_path)
    assert {row["value"]: row["count"] for row in answer["rows"]} == {repr(name): n for name, n in truth.items()}
    assert (answer["total"]["count"], answer["not_read"]) == (200_000, {"count": 0, "own": 0, "buffers": 0})
    counts = [row["count"] for row in answer["rows"]]
    assert counts == sorted(counts, reverse=True) and f"{200_000 - sum(counts[:3]):,}" in shown
    assert "not read" not in shown and "not set" not in shown


def until_let_go(process: Process) -> None:
    """Return once the time of the stop is over."""
    while process.tracer is not None and not process.tracer.expired:
        time.sleep(0.01)


def test_values_that_were_not_read(rng: random.Random, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check a process that is resumed while its values are read: the reported values are true, and the others are
    marked as unknown."""
    left, read = [rng.randrange(1, 15_000)], _AttributeReader.value

    def slowly(self: _AttributeReader, address: int, kind: int) -> int:
        left[0] -= 1
        if left[0] == 0:
            until_let_go(process)
        return read(self, address, kind)

    monkeypatch.setattr(_AttributeReader, "value", slowly)
    with running(sessions(rng, tmp_path, 20_000), tmp_path) as target:
        with stopped(target.pid, 4.0) as process:
            heap = Heap(process)
            answer = groups(heap, "__main__.Session", "tenant_id")
            shown = render(answer, Style())
            partial = heap.partial
    truth = truth_in(tmp_path)
    assert partial and answer.not_read.count > 0 and "not read" in shown and "not set" not in shown
    assert all(row.type == "str" for row in answer.rows)
    for row in answer.rows:
        known = (row.value or "").startswith("'")
        assert row.count <= (truth[(row.value or "")[1:-1]] if known else max(truth.values()))
    assert sum(row.count for row in answer.rows) + answer.not_read.count == answer.count == 20_000


def test_a_limit_that_is_too_short(rng: random.Random, tmp_path: Path) -> None:
    """Check that nothing false is reported, however early the process is resumed, and that the status is that of a
    complete answer only if it is one."""
    with running(sessions(rng, tmp_path, 20_000), tmp_path) as target:
        limits = [f"--max-stop={rng.choice([0.001, 0.005, 0.02, 0.08])}" for _ in range(6)]
        done = [gdbheap("pyobjects", str(target.pid), *GROUPED, limit, "--top=all", "--json") for limit in limits]
    truth = truth_in(tmp_path)
    for one in done:
        rows = json.loads(one.stdout).get("rows", []) if one.stdout else []
        assert all(row["value"] is not None for row in rows)
        found = {row["value"][1:-1]: row["count"] for row in rows if row["value"].startswith("'")}
        assert all(count <= truth[name] for name, count in found.items())
        assert (one.returncode == 0) == (found == truth), one


def test_what_is_refused(tmp_path: Path) -> None:
    """Check that options that exclude each other, or lack another, are wrong usage; Python 2 has strings of two
    kinds."""
    with running([interpreter_of_release("2.7").executable, "-c", "import os; os.read(0, 1)"], tmp_path) as target:
        pid = str(target.pid)
        done = gdbheap("duplicates", pid)
        lines = [
            ["--group=x"],
            ["--by=size", "--list"],
            ["--by=line", "--type=x"],
            ["--by=none"],
            ["--by=length", "--type=x"],
        ]
        statuses = [gdbheap("pyobjects", pid, *line).returncode for line in lines]
        fill = ask("pyobjects", pid, "--by=fill")
        untraced = gdbheap("pyobjects", pid, "--by=line")
    assert done.returncode == 5 and done.stderr.count("\n") == 1
    assert statuses == [2] * len(lines)
    assert {row["type"] for row in fill["rows"]} >= {"list", "dict", "set"}
    assert untraced.returncode == 5 and "tracemalloc" in untraced.stderr


# Two tuples whose addresses share a slot in a table of 65,536, and tuples of them alternating, several levels deep.
NESTED = """
import signal
seen, kept = {}, []
def pair(make):
    while True:
        one = make()
        kept.append(one)
        other = seen.setdefault((id(one) >> 4) % 65536, one)
        if other is not one:
            seen.clear()
            return other, one
two = pair(lambda: tuple([*range(1000, 1064)]))
for _ in range(5):
    two = pair(lambda: tuple(two * 32))
signal.pause()
"""


def test_tuples_nested_in_each_other(tmp_path: Path) -> None:
    """Check that each tuple is compared once: 64 to the sixth power items did not end in an hour."""
    with running([sys.executable, "-c", NESTED], tmp_path) as target:
        answer = ask("duplicates", str(target.pid))
    assert answer["count"] > 0
