"""The holders of one target are the same from a shell, gdb, a core, a snapshot, a session, a report, ``processes``
and the files of ``watch``."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.gdb_side import batch, documents, home, needs_gdb
from support.library import heap_of
from support.pages import Page, reported
from support.programs import Running, ask, gdbheap, interpreters, running

from gdbheap.findings.holder.rule import MainHolder
from gdbheap.first_page.main_holders import MainHolders
from gdbheap.snapshots.snapshot import take

KEEPS = """
import sys
cache, table = {number: bytes(4000) for number in range(4000)}, [bytes(900) for _ in range(8000)]
print(flush=True); sys.stdin.readline()
"""


def held(answer: dict[str, Any]) -> list[tuple[str, int, str, int]]:
    """Return the rows of holders: path, bytes, type, length."""
    return [(row["path"], row["bytes"], row["what"], row["count"]) for row in answer["holders"]]


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Start a Python process with two large variables."""
    if not interpreters():
        pytest.skip("no CPython")
    with running([interpreters()[0].executable, "-c", KEEPS], tmp_path_factory.mktemp("doors")) as found:
        yield found


@pytest.fixture(scope="module")
def page(target: Running) -> dict[str, Any]:
    """Return the first page, asked for in a shell."""
    answer: dict[str, Any] = ask("", str(target.pid))
    assert [row[0] for row in held(answer)] == ["cache", "table"]
    return answer


def test_in_a_snapshot(target: Running, page: dict[str, Any], tmp_path: Path) -> None:
    """Check that the page of a snapshot equals the page at that time; the shares are of the RSS in the snapshot."""
    path = tmp_path / "look.heap"
    assert gdbheap("snapshot", str(target.pid), str(path)).returncode == 0
    answer = ask("", str(path))
    assert held(answer) == held(page) and answer["verdict"].startswith(page["verdict"].partition(":")[0])
    lines = {row["id"] for row in page["ledger"]}
    assert {row["id"] for row in answer["ledger"]} == lines
    text = gdbheap(str(path)).stdout
    assert text.startswith(answer["verdict"]) and f"gdbheap diff {path} {target.pid}" in text
    refused = gdbheap(str(path), "--since", str(path))
    assert refused.returncode == 2 and refused.stderr.count("\n") == 1


def test_in_a_session(target: Running, page: dict[str, Any]) -> None:
    """Check that an empty line in a session prints the page."""
    done = gdbheap("shell", str(target.pid), "--json", input="heap\n")
    answers = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    answers = [one.get("answer", one) for one in answers]
    assert [held(one) for one in answers if "holders" in one] == [held(page)], done.stderr


def test_in_a_report(target: Running, page: dict[str, Any], tmp_path: Path) -> None:
    """Check that the second section of a report has the same rows."""
    path = tmp_path / "page.html"
    reported(path, str(target.pid))
    made = Page(path.read_text(encoding="utf-8"))
    assert made.sections[1] == "holders"
    rows = [(row["path"], row["bytes"]) for row in made.tables["holders-table"].rows]
    assert rows == [row[:2] for row in held(page)]


def test_in_processes(target: Running, page: dict[str, Any]) -> None:
    """Check that each process of the answer has its verdict and its holders."""
    (member,) = ask("processes", str(target.pid))["rows"]
    assert held(member) == held(page) and member["verdict"].partition(":")[0] == page["verdict"].partition(":")[0]
    text = gdbheap("processes", str(target.pid)).stdout
    assert f"(pid {target.pid}): " in text and "Largest holder: cache, " in text


def test_in_files_of_watch(target: Running, page: dict[str, Any], tmp_path: Path) -> None:
    """Check that the files and the snapshot of a watch have the verdict and the holders."""
    words = ["--rss=1K", "--heap", f"--output={tmp_path}"]
    assert gdbheap("watch", str(target.pid), *words).returncode == 0
    (document,), (look,) = tmp_path.glob("*.json"), tmp_path.glob("*.heap")
    answer = json.loads(document.read_text())
    assert held(answer) == held(page) == held(ask("", str(look)))
    assert answer["verdict"].startswith(page["verdict"].partition(":")[0])


def test_what_is_not_proven_is_not_compared(target: Running) -> None:
    """Check that holders without proof are not compared: each run examines another part of the references."""
    row = MainHolder(9, 9, None, "cache", "dict", 1, "variable", 1)
    with heap_of(str(target.pid)) as heap:
        whole, cut = (take(heap, held=MainHolders([one], every=[one])) for one in (row, replace(row, at_least=True)))
    assert whole.snapshot.holders == [row] and cut.snapshot.holders is None
    assert cut.snapshot.ledger.holders[0].at_least


@needs_gdb
def test_in_gdb_and_of_a_core(target: Running, page: dict[str, Any], tmp_path: Path) -> None:
    """Check the holders in gdb, of its process and of a core that gdb wrote."""
    (answer,) = documents(batch(["-p", str(target.pid)], ["heap --json"], home(tmp_path)))
    assert held(answer) == held(page)
    assert held(ask("", str(target.gcore()))) == held(page)
