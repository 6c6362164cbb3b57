"""``gdbheap report`` for several targets: the figures of pages about snapshots, calls, processes and series equal
those in the commands' JSON, cell by cell."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from support.pages import Page, reported, same_rows
from support.programs import SOURCES, Running, ask, build, gdbheap, interpreters, python_program, running
from support.recordings import finish, recording

from gdbheap.processes.family import family
from gdbheap.report.formats.json import document, text_of
from gdbheap.report.page.processes import processes_page

pytestmark = pytest.mark.skipif(not interpreters(), reason="no CPython")

STEPS = (3000, 4000, 5000)


def page_of(path: Path) -> Page:
    """Return the page in this file."""
    return Page(path.read_text(encoding="utf-8"))


@dataclass
class Looked:
    """Snapshots of a program that grew from each to the next."""

    files: list[str]

    def page(self, path: Path, *numbers: int) -> tuple[Page, dict[str, Any]]:
        """Return the page about these snapshots, and the answer of ``diff`` about them."""
        files = [self.files[number] for number in numbers]
        assert reported(path, *files)["about"] == "difference"
        return page_of(path), ask("diff", *files, "--top=all")


@pytest.fixture(scope="module")
def looked(tmp_path_factory: pytest.TempPathFactory) -> Looked:
    """Take snapshots of a program whose list of objects grows."""
    folder = tmp_path_factory.mktemp("looks")
    files = [str(folder / f"{number}.heap") for number in range(3)]
    with running(python_program(interpreters()[0].kind, "growing", STEPS[0]), folder) as program:
        for file in files:
            done = gdbheap("snapshot", str(program.pid), file, "--blocks", "--owners")
            assert done.returncode == 0, done.stderr
            program.go_on()
    return Looked(files)


def lines_of(answer: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the lines of the ledger that changed, in the form of a page."""
    return [with_looks(row) for row in answer["ledger"] if row["resident"] or row["virtual"]]


def with_looks(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row with a key for each snapshot."""
    return {**row, **{f"look-{place}": value for place, value in enumerate(row["looks"])}}


def looks_keys(answer: dict[str, Any]) -> list[str]:
    """Return the keys of the columns with the snapshots."""
    return [f"look-{place}" for place in range(len(answer["compared"]))]


def check_changes(page: Page, answer: dict[str, Any]) -> None:
    """Check that each table of a page about snapshots is the document's list of that name, and that each non-empty
    list has one."""
    looks = looks_keys(answer)
    tables: dict[str, tuple[list[dict[str, Any]], list[str]]] = {
        "changed-table": (lines_of(answer), ["name", "resident", "virtual", *looks]),
        "changed-types-table": (
            [{**with_looks(row), "together": row["bytes"], "bytes": row["own"]} for row in answer["types"]],
            ["type", "count", "bytes", "buffers", "together", *looks],
        ),
        "changed-sizes-table": (answer["sizes"], ["allocator", "size", "count", "bytes"]),
        "changed-owners-table": (
            [{**with_looks(row), "path": row["path"] or "", "address": row["address"]} for row in answer["owners"]],
            ["type", "address", "retained", "state", "path", *looks],
        ),
        "changed-arenas-table": (answer["arena_changes"], ["address", "system", "in_use", "top", "state"]),
        "changed-holes-table": (
            [{**row, "pins": ", ".join(row["around"])} for row in answer["holes"]],
            ["address", "size", "resident", "allocator", "state", "pins"],
        ),
        "changed-findings-table": (answer["findings"], ["id", "state", "bytes"]),
        "changed-blocks-table": (
            [
                {**row, "type": row["type"] or "(no object)", "kept": row["still_there"]}
                for row in answer["block_changes"] or []
            ],
            ["type", "size", "new", "gone", "kept"],
        ),
        "trend-table": (
            [{**with_looks(row), "rate": round(row["rate"] * 3600)} for row in answer["trend"]],
            ["name", "kind", "rate", *looks],
        ),
    }
    for name, (rows, keys) in tables.items():
        assert (name in page.tables) == bool(rows), name
        if rows:
            same_rows(page.tables[name], rows, keys)
    assert [row["rss"] for row in page.tables["looks-table"].rows] == [look["rss"] for look in answer["compared"]]


def test_a_difference(looked: Looked, tmp_path: Path) -> None:
    """Check two snapshots: the new rows are there, with the figures of ``diff``, and none is called a trend."""
    page, answer = looked.page(tmp_path / "page.html", 0, 2)
    check_changes(page, answer)
    (grown,) = (row for row in page.tables["changed-types-table"].rows if row["type"] == "__main__.Leaked")
    assert grown["count"] == 2 * STEPS[0]
    assert {"changed-sizes-table", "changed-blocks-table", "changed-owners-table"} <= page.tables.keys()
    assert "trend" not in page.sections


def test_a_trend(looked: Looked, tmp_path: Path) -> None:
    """Check three snapshots: the same, the rows that only rose, and the curve of RSS with the first and the last
    value."""
    page, answer = looked.page(tmp_path / "page.html", 0, 1, 2)
    check_changes(page, answer)
    risen = {row["name"]: row for row in page.tables["trend-table"].rows}
    row = risen["__main__.Leaked"]
    assert row["look-0"] < row["look-1"] < row["look-2"] and row["rate"] > 0
    curves = [found for tag, found in page.tags if tag == "svg" and found.get("class") == "curve"]
    assert len(curves) == 1
    (points,) = (str(found["points"]).split() for tag, found in page.tags if tag == "polyline")
    assert len(points) == len(answer["compared"])


def test_the_end_of_a_difference(looked: Looked, tmp_path: Path) -> None:
    """Check that the part about the last snapshot equals the page of that snapshot alone."""
    page, _answer = looked.page(tmp_path / "page.html", 0, 2)
    assert reported(tmp_path / "last.html", looked.files[2])["about"] == "snapshot"
    alone = page_of(tmp_path / "last.html")
    assert page.lines == alone.lines and page.lines
    for name in ("ledger-lines", "types-table", "holes-table", "arenas-table", "retained-table"):
        assert page.tables[name].rows == alone.tables[name].rows, name


def test_calls(rng: random.Random, tmp_path: Path) -> None:
    """Check a log with stacks: calls by kind, moments, sizes and lifetimes as in ``stats``, and the innermost lines
    as in ``stacks`` at the peak."""
    log, path = tmp_path / "calls.log", tmp_path / "page.html"
    program = [str(build("sites")), "table", "0", "4000", str(rng.getrandbits(30))]
    done = gdbheap("trace", "-o", str(log), "--stacks=all", "--", *program)
    assert done.returncode == 0, done.stderr
    assert reported(path, str(log))["about"] == "calls"
    page, stats, stacks = page_of(path), ask("calls", str(log), "--top=all"), ask("stacks", str(log), "--top=all")
    calls = {row["kind"]: row["calls"] for row in page.tables["kinds-table"].rows}
    assert calls == {kind: count for kind, count in stats["calls"].items() if count and kind != "all"}
    assert sum(calls.values()) == stats["calls"]["all"]
    moments = {row["moment"]: row for row in page.tables["moments-table"].rows}
    for moment, key in (("most bytes", "peak"), ("most blocks", "most_blocks")):
        assert {name: moments[moment][name] for name in ("call", "count", "bytes", "usable")} == {
            name: stats[key][name] for name in ("call", "count", "bytes", "usable")
        }
    assert {name: moments["at the end"][name] for name in stats["live"]} == stats["live"]
    by_bytes = [{**row, "live": row["live_blocks"]} for row in sorted(stats["sizes"], key=lambda row: -row["bytes"])]
    same_rows(page.tables["sizes-table"], by_bytes, ["from", "to", "calls", "bytes", "live", "live_bytes"])
    same_rows(
        page.tables["lives-table"],
        [{"from": row["from_calls"], "to": row["to_calls"], **row} for row in stats["lifetimes"]["by_calls"]],
        ["from", "to", "blocks"],
    )
    total = page.tables["lives-table"].total
    assert total is not None and total["blocks"] == stats["lifetimes"]["released"]
    figures = ["bytes", "blocks", "allocated_bytes", "allocated_blocks"]
    same_rows(page.tables["sites-table"], stacks["sites"], figures)
    for row, site in zip(page.tables["sites-table"].rows, stacks["sites"]):
        assert site["frame"] is None or site["frame"]["name"] in row["frame"]


@pytest.fixture
def master(tmp_path: Path) -> Iterator[Running]:
    """Yield a program that has forked children."""
    with running([interpreters()[0].executable, str(SOURCES / "family.py"), "9000"], tmp_path) as program:
        yield program


def test_processes(master: Running, tmp_path: Path) -> None:
    """Check one answer as a page and as a document: each process's figures, the sums, and what wrote the pages.

    The page that the command writes is about the same processes, with the same heaps.
    """
    pids = [master.pid, *(int(line.split()[1]) for line in master.stderr.splitlines())]
    found = family(sorted(pids), None)
    answer = json.loads(text_of(document("gdbheap processes", {}, [], [], found)))
    page = Page(processes_page(found, 0.0).decode("utf-8"))
    rows = [as_row(member) for member in answer["rows"]]
    same_rows(page.tables["processes-table"], rows, list(rows[0]))
    assert len(page.tables["processes-table"].rows) == len(pids)
    total = page.tables["processes-table"].total
    assert total is not None
    assert total["swap"] == answer["total"]["swapped"] and all(
        total[key] == answer["total"][key] for key in ("rss", "pss", "uss")
    )
    assert sum(row["bytes"] for row in page.tables["written-table"].rows) > 0
    types = [{**row, "alone": row["counts_only"]} for row in answer["types"]]
    same_rows(page.tables["written-types"], types, ["type", "objects", "bytes", "alone"])
    path = tmp_path / "page.html"
    assert reported(path, str(master.pid), "--children")["about"] == "processes"
    keys = ("pid", "program", "in_use", "free", "trim")
    again = {row["pid"]: [row[key] for key in keys] for row in page_of(path).tables["processes-table"].rows}
    assert again == {str(row["pid"]): [row[key] for key in keys] for row in rows}


def as_row(member: dict[str, Any]) -> dict[str, Any]:
    """Return a process of the document as a row of the page's table."""
    heap = member["heap"] or dict.fromkeys(("in_use", "free", "trim", "kept", "finding"))
    finding = heap["finding"]
    return {
        **{key: member[key] for key in ("program", "rss", "pss", "uss")},
        "swap": member["swapped"],
        "pid": str(member["pid"]),
        **{key: heap[key] for key in ("in_use", "free", "kept")},
        "trim": heap["reclaimable"],
        "finding": finding["id"] if finding else "",
        "finding_bytes": finding["bytes"] if finding else "",
    }


def test_series(tmp_path: Path) -> None:
    """Check that the first, last and highest value of each curve equal those of ``plot``, with a picture if one can
    be drawn."""
    pytest.importorskip("matplotlib", reason="matplotlib is not installed beside gdbheap")
    path = tmp_path / "page.html"
    program = python_program(interpreters()[0].kind, "growing", 20_000)
    with running(program, tmp_path) as target, recording(tmp_path, str(target.pid)) as recorder:
        recorder.wait(lambda found: found)
        target.go_on()
        known = len(recorder.samples())
        recorder.wait(lambda found: len(found) > 2, known)
        assert finish(recorder)[0] == 0
    assert reported(path, str(recorder.path))["about"] == "series"
    done = gdbheap("plot", str(recorder.path), "-o", str(tmp_path / "picture.svg"), "--json")
    assert done.returncode == 0, done.stderr
    extents = json.loads(done.stdout)["rows"]
    page = page_of(path)
    rows = [{**row, "change": row["last"] - row["first"]} for row in extents]
    same_rows(page.tables["extents"], rows, ["first", "last", "change", "peak", "samples"])
    assert len(page.tables["extents"].rows) == len(extents) > 0
    assert all(
        str(row["pid"]) == shown["process"].split()[0] for row, shown in zip(extents, page.tables["extents"].rows)
    )
    assert any(tag == "svg" for tag, _found in page.tags)
    (grown,) = (row for row in page.tables["extents"].rows if row["figure"] == "resident memory (RSS)")
    assert grown["change"] > 20_000 * 50 and grown["peak"] >= grown["last"]
