"""Memory that a program without Python lost is a finding, and memory that hangs on a global is named by it."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from support.programs import ask, build, c_program, running


def finding(answer: dict[str, Any], name: str) -> dict[str, Any]:
    """Return the finding with this name."""
    (found,) = (row for row in answer["findings"] if row["id"] == name)
    assert isinstance(found, dict)
    return found


def in_use(target: str) -> int:
    """Return the bytes of all blocks in use."""
    return sum(row["used"] for row in ask("sizes", target)["rows"])


def test_lost_blocks(rng: random.Random, tmp_path: Path) -> None:
    """Check that the finding has exactly the planted bytes, without the blocks that hang on the global."""
    with running(c_program("hangs", rng.getrandbits(30), 1), tmp_path) as target:
        _hung, lost = map(int, target.stderr.split())
        answer = ask("", str(target.pid))
    row = finding(answer, "lost-blocks")
    assert row["bytes"] == lost and row["figures"]["blocks"] == 2 * row["figures"]["heads"]
    assert row["commands"][0] == f"gdbheap unreachable {target.pid}"
    assert row["commands"][1].startswith(f"gdbheap catch {target.pid} malloc --min=")


def test_blocks_that_hang_on_a_global(rng: random.Random, tmp_path: Path) -> None:
    """Check that the global is named with its blocks, and that memory in use falls by as much once they are freed."""
    with running(c_program("hangs", rng.getrandbits(30), 0), tmp_path) as target:
        hung, _lost = map(int, target.stderr.split())
        before = in_use(str(target.pid))
        answer, rows = ask("", str(target.pid)), ask("owners", str(target.pid), "--by=global", "--min=1")["rows"]
        target.go_on()
        after = in_use(str(target.pid))
    assert (rows[0]["path"], rows[0]["what"]) == ("'sessions' in hangs", "block of 80 bytes")
    assert rows[0]["bytes"] == 80 * rows[0]["blocks"] == hung == before - after
    assert all(other["id"] != "lost-blocks" for other in answer["findings"])


def test_intrusive_list(rng: random.Random, tmp_path: Path) -> None:
    """Check that a list with links inside its nodes belongs to its variable, even if a stack points to one of the
    nodes."""
    count = rng.randrange(4000, 8000)
    with running([str(build("intrusive")), str(count)], tmp_path) as target:
        first = ask("", str(target.pid))["holders"][0]
    assert first["path"] == "'nodes' in intrusive" and first["bytes"] >= (count - 3) * 4024
