"""Findings about programs of the tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

THP = Path("/sys/kernel/mm/transparent_hugepage/enabled")
# prctl(PR_SET_THP_DISABLE, 1): the executed program inherits it.
FORBID = "import ctypes, os, sys; ctypes.CDLL(None).prctl(41, 1, 0, 0, 0); os.execv(sys.argv[1], sys.argv[1:])"


def finding(answer: dict[str, Any], name: str) -> dict[str, Any]:
    """Return the finding of that id; there must be exactly one."""
    found = [row for row in answer["findings"] if row["id"] == name]
    assert len(found) == 1, answer["findings"]
    row: dict[str, Any] = found[0]
    assert row["text"] and row["advice"] and row["bytes"] > 4 << 20
    return row
