"""pymalloc's figures: as the interpreter prints them, as a simple walker counts them, and as ``heap pools`` reports
them.
"""

from __future__ import annotations

import re
from typing import Any

from reference import pymalloc

from support.programs import Running

CLASS_ROW = re.compile(r"^ *\d+ +(\d+) +(\d+) +(\d+) +(\d+)$", re.MULTILINE)
ARENAS = re.compile(r"^([\d,]+) arenas \* (\d+) bytes/arena", re.MULTILINE)
UNUSED = re.compile(r"^([\d,]+) unused pools \* (\d+) bytes", re.MULTILINE)


def told(text: str) -> dict[str, Any]:
    """Return the figures of sys._debugmallocstats() under the keys of ``heap pools``; classes as {size: (pools, used,
    free)}.
    """
    arenas, unused = ARENAS.search(text), UNUSED.search(text)
    assert arenas and unused, text
    return {
        "arenas": int(arenas[1].replace(",", "")),
        "arena_size": int(arenas[2]),
        "free_pools": int(unused[1].replace(",", "")),
        "pool_size": int(unused[2]),
        "classes": {int(row[0]): tuple(map(int, row[1:])) for row in CLASS_ROW.findall(text)},
    }


def answered(answer: dict[str, Any]) -> dict[str, Any]:
    """Return the same figures from the answer, without classes whose figures are all 0."""
    rows = {row["size"]: (row["pools"], row["used_count"], row["free_count"]) for row in answer["rows"]}
    assert len(rows) == len(answer["rows"]), "a size class with two rows"
    plain = {key: answer[key] for key in ("arenas", "arena_size", "free_pools", "pool_size")}
    return {**plain, "classes": {size: row for size, row in rows.items() if any(row)}}


def referenced(pid: int) -> dict[int, tuple[int, int, int]]:
    """Return {size: (pools, used, free)} from the simple walker, with the pool size that gives more blocks in use."""
    walks = [list(pymalloc.pools(pid, size)) for size in (pymalloc.POOL, pymalloc.OLD_POOL)]
    pools = max(walks, key=lambda found: sum(len(pool.used) for pool in found))
    rows: dict[int, tuple[int, int, int]] = {}
    for pool in pools:
        count, used, free = rows.get(pool.size, (0, 0, 0))
        rows[pool.size] = (count + 1, used + len(pool.used), free + len(pool.free))
    return rows


def check_pools(target: Running, answer: dict[str, Any]) -> None:
    """Compare with sys._debugmallocstats() and with the simple walker, which is the only reference for 2.7."""
    assert answer["damage"] == []
    found = answered(answer)
    assert found["classes"] == referenced(target.pid)
    if target.stderr:
        assert found == told(target.stderr)
