"""Read the shipped tables of struct layouts.

The tables are JSON files that list each layout under the release that introduced it, and name their sources.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

TABLES = Path(__file__).with_name("tables")


@cache
def table(name: str) -> dict[str, Any]:
    """Return the content of ``tables/NAME.json``."""
    loaded: dict[str, Any] = json.loads((TABLES / f"{name}.json").read_text(encoding="utf-8"))
    return loaded


def variants(name: str, struct: str) -> list[dict[str, Any]]:
    """Return all known layouts of ``struct`` in the table ``name``, newest first.

    The bytes of the target decide which layout applies, not a version number.
    """
    found: list[dict[str, Any]] = table(name)[struct]
    return found
