"""The screen of ``top``: columns by the known figures, help, and names as in ``ps`` and ``processes``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from support.programs import ask, gdbheap, running

from gdbheap.commands.surface.screen import Screen
from gdbheap.report.text.style import Style
from gdbheap.report.words.top import HELP, render
from gdbheap.sampling.current_totals import CurrentTable, Standing, StandingSum

MIB = 1 << 20


class Window:
    """A window that records its text, with some keys to be read."""

    def __init__(self, keys: str) -> None:
        self.keys = [ord(key) for key in keys]
        self.lines: list[str] = []
        self.waits: list[int] = []

    def getmaxyx(self) -> tuple[int, int]:
        return 24, 80

    def erase(self) -> None:
        self.lines = []

    def addnstr(self, _row: int, _column: int, text: str, count: int, _look: int) -> None:
        self.lines.append(text[:count])

    def refresh(self) -> None: ...

    def timeout(self, milliseconds: int) -> None:
        self.waits.append(milliseconds)

    def getch(self) -> int:
        return self.keys.pop(0) if self.keys else -1


def standing(swap: int, system: int | None, pools: int | None) -> Standing:
    in_use = None if system is None else system // 2
    return Standing(7, "serve.py", 9 * MIB, 0, 1.0, swap, system, in_use, pools, pools)


def shown(*rows: Standing, **style: Any) -> str:
    total = StandingSum(len(rows), 9 * MIB, 0, sum(row.swapped or 0 for row in rows))
    return render(CurrentTable(0.0, list(rows), total), 0, Style(**style))


def test_no_process() -> None:
    """Check the table of no process: a sentence instead of headings."""
    assert shown().splitlines()[1:] == ["", "No running process matches."]


def test_columns() -> None:
    """Check that columns of malloc and of Python have different names, and that swap has a column if there is any."""
    text = shown(standing(0, 4 * MIB, None))
    assert "malloc used" in text and "python used" in text and "swap" not in text
    assert "swap 1.0 MiB" in shown(standing(MIB, 4 * MIB, None)) and text.splitlines()[-1].endswith("-")


def test_what_is_not_read_yet() -> None:
    """Check that an unread value is shown neither as a question mark nor as a hyphen, which means that there is
    none."""
    text = shown(standing(0, None, None)).splitlines()[-1]
    assert text.count("…") == 5 and "?" not in text
    assert shown(standing(0, None, None), ascii=True).splitlines()[-1].count("..") == 5


def test_help() -> None:
    """Check that h and ? show the help until a key is pressed, and that q ends, also from there."""
    for keys, ends in (("hx", False), ("?x", False), ("hq", True), ("q", True), ("x", False)):
        window = Window(keys)
        assert Screen(window, HELP).wait(1.0) == ends and not window.keys
        assert (window.lines == HELP.splitlines()) == (keys[0] in "h?")
        assert window.waits == ([1000, -1] if keys[0] in "h?" else [1000])


def test_one_name(tmp_path: Path) -> None:
    """Check that a script has the same name in ps, top, processes and on its first page, each with its process id."""
    script = tmp_path / "serve-me.py"
    script.write_text("import sys; print(flush=True); sys.stdin.readline()")
    with running([sys.executable, str(script), "--secret"], tmp_path) as target:
        pid = str(target.pid)
        page = ask("", pid, "--quick")["verdict"]
        (top,) = ask("top", pid)["rows"]
        (member,) = ask("processes", pid, "--quick")["rows"]
        conclusion, *lines = gdbheap("ps", "--filter=serve-me").stdout.splitlines()
        rows = [line for line in lines if "serve-me" in line]
    assert page.startswith(f"serve-me.py (pid {pid})")
    assert (top["program"], top["pid"]) == (member["program"], member["pid"]) == ("serve-me.py", target.pid)
    assert "serve-me.py" in conclusion and [line.split()[-2:] for line in rows] == [[pid, "serve-me.py"]]
