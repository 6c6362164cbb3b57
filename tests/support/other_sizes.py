"""The rows of ``heap sizes`` by allocator."""

from __future__ import annotations

from typing import Any

OF_C = "glibc"


def others(answer: dict[str, Any]) -> list[dict[str, Any]]:
    """Return, for each allocator except glibc's, its name and module, its rows (``sizes``) and their sums."""
    found: dict[tuple[str, str | None], list[dict[str, Any]]] = {}
    for row in answer["rows"]:
        if row["allocator"] != OF_C:
            found.setdefault((row["allocator"], row["module"]), []).append(row)
    return [
        {
            "allocator": name,
            "module": module,
            "sizes": sorted(rows, key=lambda row: int(row["size"])),
            "total": {key: sum(row[key] for row in rows) for key in ("used_count", "free_count", "used", "free")},
            "asked": _sum(rows, "asked"),
            "freed": _sum(rows, "freed"),
        }
        for (name, module), rows in found.items()
    ]


def _sum(rows: list[dict[str, Any]], key: str) -> int | None:
    known = [row[key] for row in rows if row[key] is not None]
    return sum(known) if known else None
