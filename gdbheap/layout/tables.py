"""The shipped tables: layouts as data, by the release that changed them, each file with its source."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

TABLES = Path(__file__).with_name("tables")


@cache
def table(name: str) -> dict[str, Any]:
    """Return the table in ``tables/NAME.json``."""
    loaded: dict[str, Any] = json.loads((TABLES / f"{name}.json").read_text(encoding="utf-8"))
    return loaded


def variants(name: str, struct: str) -> list[dict[str, Any]]:
    """Return all known layouts of ``struct``, newest first. The target's bytes decide between them, not a version."""
    found: list[dict[str, Any]] = table(name)[struct]
    return found
