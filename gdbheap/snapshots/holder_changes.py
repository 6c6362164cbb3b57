"""Compare the holders of memory in use between snapshots. Holders with the same path are the same holder."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace

from gdbheap.answers.accounting.paths import ANY_SUBSCRIPT, alike, without_subscripts
from gdbheap.answers.accounting.smallest_row import least_of_row
from gdbheap.answers.holder_change import Change, HolderChange
from gdbheap.answers.shared_out import MANY, VARIABLE
from gdbheap.contents.postgresql.contexts import CONTEXT
from gdbheap.contents.python.names.packages import LIBRARY, PACKAGE
from gdbheap.findings.holder.rule import MainHolder
from gdbheap.graph.roots import GLOBAL, MEMORY, THREAD
from gdbheap.snapshots.snapshot import MAX_HOLDERS, Snapshot

__all__ = ["changed_holders"]

# Holders of these kinds have no row of their own if they are small.
OF_SOME_SIZE = (VARIABLE, PACKAGE, LIBRARY, THREAD, MEMORY)
PART_SIGNS = (".", "[")
# A value by its position in a dict, as in paths that show no keys. Another snapshot may have the value's key.
BY_PLACE = re.compile(r"list\(dict\.values\(([^()]*)\)\)\[(?:\d+|…)\]")
# The number in the name of a row that stands for several things.
COUNT = re.compile(r"(?<![\d,])[\d,]{1,32} (?=other |memory contexts )")


def changed_holders(looks: Sequence[Snapshot], same: bool) -> list[HolderChange] | None:
    """Return the holders that changed, those that grew the most first; None if a snapshot has no holders.

    ``same``: whether all snapshots are of one process. Then an object that has another path in a later snapshot counts
    as the same holder.
    """
    if any(look.holders is None for look in looks):
        return None
    rows = [look.holders or [] for look in looks]
    paths = (_without_places(row.path) for of_look in rows for row in of_look)
    patterns = {path for path in paths if ANY_SUBSCRIPT in path}
    tables = [_by_name(of_look, patterns) for of_look in rows]
    if same:
        tables = [*(_renamed(table, tables[-1]) for table in tables[:-1]), tables[-1]]
    homes = _homes(tables[0], tables[-1])
    sums = [_summed(table, homes) for table in tables]
    bounds = [_bound(look) for look in looks]
    names = dict.fromkeys(homes[path] for path in {**tables[-1], **tables[0]})
    parts: defaultdict[str, list[str]] = defaultdict(list)
    for path, home in homes.items():
        if home != path:
            parts[home].append(path)
    changes = [_change(name, tables, sums, bounds, sorted(parts[name])) for name in names]
    return sorted((one for one in changes if len(set(one.looks)) > 1), key=lambda one: (-one.bytes, one.path))


def _by_name(rows: Sequence[MainHolder], patterns: set[str]) -> dict[str, MainHolder]:
    """Return the rows by the name under which they are compared.

    Rows with the same name become one row: the largest of them, with the sum of their bytes.
    """
    found: dict[str, MainHolder] = {}
    for row in rows:
        name = _name(row, patterns)
        other = found.get(name, row)
        size = row.bytes + (other.bytes if name in found else 0)
        found[name] = replace(max(row, other, key=lambda one: one.bytes), bytes=size)
    return found


def _without_places(path: str) -> str:
    """Return a path with a placeholder for each position of a value in a dict, because positions change."""
    plain = BY_PLACE.sub(rf"\1{ANY_SUBSCRIPT}", path)
    return plain if plain == path else _without_places(plain)


def _name(row: MainHolder, patterns: set[str]) -> str:
    """Return a holder's path without the parts that change between snapshots: counts, the first items, and the most
    frequent type. If another snapshot lists the variable only in a group of similar variables (``patterns``), return
    the path of that group.
    """
    path = _without_places(row.path)
    plain = COUNT.sub("", path, count=1)
    if row.kind == GLOBAL or (plain != path and row.kind in MANY):
        return plain.partition(": ")[0]
    if row.kind == CONTEXT:
        return plain.replace("memory contexts ", "memory context ", 1)
    return next((shape for shape in (alike(plain), without_subscripts(plain)) if shape in patterns), plain)


def _renamed(table: dict[str, MainHolder], last: dict[str, MainHolder]) -> dict[str, MainHolder]:
    """Return the rows of an earlier snapshot by the paths that the last snapshot uses for the same objects."""
    places = [((row.address, row.what), name) for name, row in last.items() if row.address is not None]
    names: dict[tuple[int | None, str | None], str] = dict(places)
    found = {}
    for name, row in table.items():
        moved = name if name in last else names.get((row.address, row.what), name)
        found[name if moved in table else moved] = row
    return found


def _homes(first: dict[str, MainHolder], last: dict[str, MainHolder]) -> dict[str, str]:
    """Return, for each path, the path under which it is compared.

    A path in only one of the two snapshots may begin with a path that is in both. It is then compared as a part of that
    path."""
    both = first.keys() & last.keys()
    lengths = sorted({len(path) for path in both if path}, reverse=True)
    return {path: path if path in both else _above(path, both, lengths) or path for path in {**first, **last}}


def _above(path: str, known: set[str], lengths: Sequence[int]) -> str | None:
    """Return the longest of the ``known`` paths of which a path is a part; None if there is none.

    ``lengths``: the lengths of the known paths, descending.
    """
    ends = (length for length in lengths if length < len(path) and path[length] in PART_SIGNS)
    return next((path[:end] for end in ends if path[:end] in known), None)


def _summed(table: dict[str, MainHolder], homes: dict[str, str]) -> Counter[str]:
    sums: Counter[str] = Counter()
    for path, row in table.items():
        sums[homes.get(path, path)] += row.bytes
    return sums


def _bound(look: Snapshot) -> int:
    """Return the most bytes that a holder may have without a row, because a snapshot lists only the largest holders."""
    rows = look.holders or []
    least = min((row.bytes for row in rows), default=0) if len(rows) >= MAX_HOLDERS else 0
    return max(least, least_of_row(sum(row.bytes for row in rows)))


def _change(
    name: str,
    tables: Sequence[dict[str, MainHolder]],
    sums: Sequence[Counter[str]],
    bounds: Sequence[int],
    parts: list[str],
) -> HolderChange:
    found = [table.get(name) for table in tables]
    row = next(one for one in reversed(found) if one is not None)
    most = max(total[name] for total in sums)
    unseen = [name not in total for total in sums]
    least = bounds if row.kind in OF_SOME_SIZE else [0] * len(tables)
    looks = [min(bound, most) if is_unseen else total[name] for is_unseen, bound, total in zip(unseen, least, sums)]
    counts = [None if one is None else one.count for one in found]
    first, last = counts[0], counts[-1]
    is_least = any(one.at_least for one in found if one is not None) or any(
        is_unseen and size for is_unseen, size in zip((unseen[0], unseen[-1]), (looks[0], looks[-1]))
    )
    state: Change = "new" if unseen[0] else "gone" if unseen[-1] else "changed"
    more = None if first is None or last is None else last - first
    return HolderChange(
        row.path, row.kind, row.what, row.address, state, looks[-1] - looks[0], looks, more, counts, is_least, parts
    )
