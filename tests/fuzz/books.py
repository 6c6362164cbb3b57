"""Sums that hold in every answer, whatever the target: parents are the sums of their children, totals of their rows."""

from __future__ import annotations

from typing import Any

COLUMNS = ("virtual", "resident", "swapped")


def unbalanced(noun: str, answer: dict[str, Any], span: int) -> list[str]:
    """Return the sums of a JSON answer that do not agree.

    ``span``: bytes of all mappings of the target.
    """
    checks = {
        "": lambda: _ledger(answer["ledger"], span),
        "arenas": lambda: _arenas(answer),
        "map": lambda: _map(answer),
    }
    return checks[noun]() if noun in checks else []


def _ledger(lines: list[dict[str, Any]], span: int) -> list[str]:
    wrong = [f"{line['id']} has {line}" for line in lines if any((line[column] or 0) < 0 for column in COLUMNS)]
    for line in lines:
        children = [child for child in lines if child["parent"] == line["id"]]
        for column in COLUMNS if children else ():
            total = _sum(children, column)
            if total != line[column]:
                wrong.append(f"{column} of {line['id']}: {line[column]}, its children {total}")
    roots = _sum([line for line in lines if line["parent"] is None], "virtual")
    if roots != span:
        wrong.append(f"the roots have {roots} bytes, the mappings {span}")
    return wrong


def _sum(lines: list[dict[str, Any]], column: str) -> int | None:
    values = [line[column] for line in lines]
    return None if any(value is None for value in values) else sum(values)


def _arenas(answer: dict[str, Any]) -> list[str]:
    rows = answer["rows"]
    apart = answer["mmapped_chunks"]
    wrong = [f"arena of {row}" for row in rows if not 0 <= row["in_use"] <= row["system"]]
    for key in ("system", "in_use"):
        total = sum(row[key] for row in rows) + (apart["bytes"] if apart and key != "free" else 0)
        if total != answer["total"][key]:
            wrong.append(f"{key}: {total} in rows, {answer['total'][key]} in all")
    return wrong


def _map(answer: dict[str, Any]) -> list[str]:
    wrong = []
    for group in answer["rows"]:
        cells = sum(cell["end"] - cell["start"] for cell in group["cells"])
        if cells != group["end"] - group["start"]:
            wrong.append(f"{group['name']}: cells of {cells} bytes in {group['start']:#x} to {group['end']:#x}")
    return wrong
