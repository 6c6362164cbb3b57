"""Read the shipped tables of struct layouts.

The tables are JSON files that list each layout under the release that introduced it, and name their sources.
"""

from __future__ import annotations

import json
import os
from functools import cache
from typing import Any

TABLES = os.path.join(os.path.dirname(__file__), "tables")


@cache
def table(name: str) -> dict[str, Any]:
    """Return the content of ``tables/NAME.json``."""
    with open(os.path.join(TABLES, f"{name}.json"), encoding="utf-8") as stream:
        loaded: dict[str, Any] = json.load(stream)
    return loaded


def variants(name: str, struct: str) -> list[dict[str, Any]]:
    """Return all known layouts of ``struct`` in the table ``name``, newest first.

    The bytes of the target decide which layout applies, not a version number.
    """
    found: list[dict[str, Any]] = table(name)[struct]
    return found
