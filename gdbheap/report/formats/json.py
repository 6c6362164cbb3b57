"""The JSON document of an answer. Scripts rely on its keys."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from typing import Any

from gdbheap.answers.accounting.records import (
    COUNT,
    MORE,
    ROWS,
    SCHEMA,
    TOTAL,
    TargetRecord,
    more_of,
    record_lists,
    sums_of,
    to_json,
)
from gdbheap.errors import own_line
from gdbheap.text import json_text

__all__ = ["MOST", "bounded", "document", "error_document", "error_keys", "text_of"]

FINDINGS = "gdbheap.findings.finding"
MOST = 64 << 10
"""The most bytes of a document, unless the user asks for more."""
TARGET_KEYS = tuple(field.name for field in dataclasses.fields(TargetRecord))
# The numbers of items to keep in each list, and in each list inside of its items.
#
# They are tried in turn until the document is small enough.
LENGTHS = (1000, 300, 100, 50, 20, 10, 5, 2, 1)
NESTED = (1000, 100, 30, 10, 4)
# The least number of items that are kept of a list of plain numbers or words, which is short and belongs together.
LEAST_PLAIN = 20


def document(
    name: str,
    targets: Sequence[Mapping[str, Any]],
    warnings: Iterable[str],
    damage: Iterable[Any],
    answer: Any,
    whole: Any = None,
) -> dict[str, Any]:
    """Return the JSON document of an answer: the envelope ("command", "schema", "target", "warnings", "damage"), then
    the answer's own keys.

    The document contains no time. So the answers to the same question about a stopped target are equal, except for the
    figures of its container, which other processes change.

    ``targets``: a description of each target. If there are several, they are under the key "targets"; if there is none,
    "target" is null. ``answer`` and each item of ``damage`` are dataclasses whose field names are the keys; dataclasses
    inside of them are not converted. ``whole``: the answer before its rows were cut. Raises ValueError if a key of the
    answer is also one of the envelope.
    """
    about = [{**dict.fromkeys(TARGET_KEYS), **target} for target in targets]
    many = {"targets": about} if len(about) > 1 else {"target": about[0] if about else None}
    envelope = {"command": name, "schema": SCHEMA, **many, "warnings": list(warnings), "damage": list(damage)}
    keys = _answer_keys(answer, answer if whole is None else whole)
    hidden = envelope.keys() & keys.keys()
    if hidden:
        raise ValueError(f"an answer has keys that every document has: {sorted(hidden)}")
    return {**envelope, **keys}


def _answer_keys(answer: Any, whole: Any) -> dict[str, Any]:
    """Return the keys of an answer with their values: those of its record, and the number of rows. For each list, a
    further key says how many items were left out.
    """
    keys = dict(to_json(answer))
    sums = sums_of(type(answer))
    total = {TOTAL: {name: keys.pop(name) for name in sums}} if sums else {}
    listed = record_lists(type(answer))  # type: ignore[arg-type]  # a type is hashable
    lists = {key: keys[key] or () for key in listed}
    more = {more_of(key): len(getattr(whole, key, own) or ()) - len(own) for key, own in lists.items()}
    if ROWS not in keys:
        return _each_with_more(keys, more)
    rows = keys.pop(ROWS)
    # If an answer has cut its rows itself, it also has the number of all rows.
    count = keys.pop("matching", None)
    count = keys.pop(COUNT, len(getattr(whole, ROWS))) if count is None else count
    own_total = keys.pop(TOTAL, None)
    head = {ROWS: rows, COUNT: count, MORE: count - len(rows), TOTAL: total.get(TOTAL, own_total)}
    return {**head, **_each_with_more(keys, more)}


def _each_with_more(keys: Mapping[str, Any], more: Mapping[str, int]) -> dict[str, Any]:
    """Return ``keys`` together with ``more``: after each list, a key says how many of its items were left out."""
    found: dict[str, Any] = {}
    for key, value in keys.items():
        found[key] = value
        if more_of(key) in more:
            found[more_of(key)] = more[more_of(key)]
    return found


def error_document(name: str, status: int, what: str, steps: Sequence[str]) -> dict[str, Any]:
    """Return the JSON document of a command that cannot answer.

    ``status``: its exit status.
    ``what``: one line that says what is wrong and what to do.
    ``steps``: the next steps.
    """
    return {"command": name, "schema": SCHEMA, "error": error_keys(status, what, steps)}


def error_keys(status: int, what: str, steps: Sequence[str]) -> dict[str, Any]:
    """Return an error as keys and values of a JSON document: the exit status, what is wrong, and the next steps."""
    return {"status": status, "what": own_line(what), "next": [own_line(step) for step in steps]}


def text_of(content: Mapping[str, Any]) -> str:
    """Return the document on one line, in printable ASCII, whatever characters a target's names have.

    Among the lines that gdb itself prints, the document is the only line that begins with a brace.
    """
    return json_text(content, _keys)


def bounded(content: dict[str, Any], most: int = MOST, kept: str = "") -> str:
    """Return a document as text, with its lists cut until it has at most ``most`` bytes.

    Lists inside of other lists' items are cut first. The list under the key ``kept`` is never cut. After a list that is
    cut, a key says how many items were left out: MORE for the rows, otherwise the list's key with "_more".
    """
    # Each list is first cut to ``most`` items, because more items cannot fit.
    text = text_of(_shorter(content, None, most, kept))
    if len(text) <= most:
        return text
    whole = json.loads(text)
    if kept and len(text_of(_shorter(whole, NESTED[-1], LENGTHS[-1], kept))) > most:
        # All rows of ``kept`` stay, even if they are too many, because the user asked for them.
        return text
    for length, nested in sorted(product(LENGTHS, NESTED), key=lambda pair: -pair[0] * pair[1]):
        text = text_of(_shorter(whole, nested, length, kept))
        if len(text) <= most:
            break
    return text


def _shorter(content: Mapping[str, Any], nested: int | None, length: int, kept: str = "") -> dict[str, Any]:
    """Return the document with each list cut to ``length`` items, except the list under the key ``kept``. ``nested``:
    the length to which the lists inside of items are cut; None to leave them whole."""
    found: dict[str, Any] = {}
    for key, value in content.items():
        inner = value if nested is None else _inner(value, nested)
        # The number of left-out items comes after its list and already includes it, so the first value stays.
        for name, own in _cut(key, inner, content, sys.maxsize if key == kept else length).items():
            found.setdefault(name, own)
    return found


def _cut(key: str, value: Any, beside: Mapping[str, Any], length: int) -> dict[str, Any]:
    """Return the key with its list cut to ``length`` items, and a second key with the number of items left out.

    This number includes the items that an earlier cut left out. If nothing is cut, return only the key with its value.
    """
    if not isinstance(value, list):
        return {key: value}
    plain = not any(isinstance(item, (dict, list)) for item in value)
    length = max(length, LEAST_PLAIN) if plain else length
    if len(value) <= length:
        return {key: value}
    name = MORE if key == ROWS else more_of(key)
    known = beside.get(name)
    left = len(value) - length + (known if isinstance(known, int) else 0)
    return {key: value[:length], name: left}


def _inner(value: Any, length: int) -> Any:
    """Return the value with each list inside of it cut to ``length`` items. If the value itself is a list, it keeps all
    its items."""
    if isinstance(value, list):
        return [_inner(item, length) for item in value]
    if not isinstance(value, dict):
        return value
    return _shorter(value, length, length)


def _keys(record: Any) -> dict[str, Any]:
    """Return a record as keys and values for JSON. A finding also gets its text and advice."""
    # A caller that has a finding has already imported its module. Without that import, all other callers start faster.
    finding = sys.modules.get(FINDINGS)
    if finding is not None and isinstance(record, finding.Finding):
        from gdbheap.report.words import findings

        record = findings.keys_of(record)
    return to_json(record)
