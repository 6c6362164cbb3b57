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
    Target,
    more_of,
    record_lists,
    sums_of,
    to_json,
)
from gdbheap.errors import next_steps, one_line
from gdbheap.text import json_text

__all__ = ["MOST", "bounded", "document", "error_document", "error_keys", "text_of"]

FINDINGS = "gdbheap.findings.finding"
MOST = 64 << 10
"""The most bytes of a document, unless more were asked for."""
TARGET_KEYS = tuple(field.name for field in dataclasses.fields(Target))
# How many items a list keeps, and a list within its items. Each length is tried until a document is small enough.
LENGTHS = (1000, 300, 100, 50, 20, 10, 5, 2, 1)
NESTED = (1000, 100, 30, 10, 4)
# Plain lists of numbers or words are short and belong together, so they keep at least this many items.
LEAST_PLAIN = 20


def document(
    name: str,
    targets: Sequence[Mapping[str, Any]],
    warnings: Iterable[str],
    damage: Iterable[Any],
    answer: Any,
    whole: Any = None,
) -> dict[str, Any]:
    """Return the JSON document: the envelope ("command", "schema", "target", "warnings", "damage"), then the answer's
    own keys.

    It contains no time: answers to one question about a stopped target are equal, except for the figures of its
    container, which other processes change.

    ``targets``: a description of each target. Several are under the key "targets"; without any, "target" is null.
    ``answer`` and each of ``damage`` are dataclasses whose field names are the keys; records inside of them stay
    records. ``whole``: the answer before its rows were cut. Raises ValueError if a key of the answer hides one of the
    envelope's.
    """
    about = [{**dict.fromkeys(TARGET_KEYS), **target} for target in targets]
    many = {"targets": about} if len(about) > 1 else {"target": about[0] if about else None}
    envelope = {"command": name, "schema": SCHEMA, **many, "warnings": list(warnings), "damage": list(damage)}
    keys = _answer_keys(answer, answer if whole is None else whole)
    hidden = envelope.keys() & keys.keys()
    if hidden:
        raise ValueError(f"an answer's keys hide the envelope's: {sorted(hidden)}")
    return {**envelope, **keys}


def _answer_keys(answer: Any, whole: Any) -> dict[str, Any]:
    """Return the keys of an answer: those of its record, the number of rows, and how many items each list left out."""
    keys = dict(to_json(answer))
    sums = sums_of(type(answer))
    total = {TOTAL: {name: keys.pop(name) for name in sums}} if sums else {}
    listed = record_lists(type(answer))  # type: ignore[arg-type]  # a type is hashable
    lists = {key: keys[key] or () for key in listed}
    more = {more_of(key): len(getattr(whole, key, own) or ()) - len(own) for key, own in lists.items()}
    if ROWS not in keys:
        return _each_with_more(keys, more)
    rows = keys.pop(ROWS)
    # An answer that cuts its rows itself has their number.
    count = keys.pop("matching", None)
    count = keys.pop(COUNT, len(getattr(whole, ROWS))) if count is None else count
    own_total = keys.pop(TOTAL, None)
    head = {ROWS: rows, COUNT: count, MORE: count - len(rows), TOTAL: total.get(TOTAL, own_total)}
    return {**head, **_each_with_more(keys, more)}


def _each_with_more(keys: Mapping[str, Any], more: Mapping[str, int]) -> dict[str, Any]:
    """Return the keys, each list followed by the number of items that it left out."""
    found: dict[str, Any] = {}
    for key, value in keys.items():
        found[key] = value
        if more_of(key) in more:
            found[more_of(key)] = more[more_of(key)]
    return found


def error_document(name: str, status: int, what: str) -> dict[str, Any]:
    """Return the document of a command that cannot answer.

    ``status``: its exit status; ``what``: one line that says what is wrong and what to do.
    """
    return {"command": name, "schema": SCHEMA, "error": error_keys(status, what)}


def error_keys(status: int, what: str) -> dict[str, Any]:
    """Return the keys of an error."""
    line = one_line(what)
    return {"status": status, "what": line, "next": next_steps(line)}


def text_of(content: Mapping[str, Any]) -> str:
    """Return the document on one line, in printable ASCII whatever a target's names are.

    Among the lines that gdb itself prints, it is the one that begins with a brace.
    """
    return json_text(content, _keys)


def bounded(content: dict[str, Any], most: int = MOST, kept: str = "") -> str:
    """Return ``text_of`` a document, with its lists cut until it has at most ``most`` bytes.

    Lists within other lists' items are cut first, and the list ``kept`` never. Next to a list that is cut, MORE, or its
    name and "_more", has the number of items left out.
    """
    # Items beyond ``most`` are left out before the document is written.
    text = text_of(_shorter(content, None, most, kept))
    if len(text) <= most:
        return text
    whole = json.loads(text)
    if kept and len(text_of(_shorter(whole, NESTED[-1], LENGTHS[-1], kept))) > most:
        # The rows of ``kept`` were asked for.
        return text
    for length, nested in sorted(product(LENGTHS, NESTED), key=lambda pair: -pair[0] * pair[1]):
        text = text_of(_shorter(whole, nested, length, kept))
        if len(text) <= most:
            break
    return text


def _shorter(content: Mapping[str, Any], nested: int | None, length: int, kept: str = "") -> dict[str, Any]:
    """Return the keys with lists of at most ``length`` items, except the list ``kept``; ``nested``: the same for lists
    in items."""
    found: dict[str, Any] = {}
    for key, value in content.items():
        inner = value if nested is None else _inner(value, nested)
        # The number of left-out items follows its list and was counted with it, so the first value stays.
        for name, own in _cut(key, inner, content, sys.maxsize if key == kept else length).items():
            found.setdefault(name, own)
    return found


def _cut(key: str, value: Any, beside: Mapping[str, Any], length: int) -> dict[str, Any]:
    """Return a key with its shortened list and the number of items left out, including those left out before."""
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
    """Return a value with shorter lists in its items."""
    if isinstance(value, list):
        return [_inner(item, length) for item in value]
    if not isinstance(value, dict):
        return value
    return _shorter(value, length, length)


def _keys(record: Any) -> dict[str, Any]:
    """Return the keys of a record; a finding also gets its words."""
    # A caller that has a finding has imported its module; all others start faster without it.
    finding = sys.modules.get(FINDINGS)
    if finding is not None and isinstance(record, finding.Finding):
        from gdbheap.report.words import findings

        record = findings.keys_of(record)
    return to_json(record)
