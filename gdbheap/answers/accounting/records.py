"""Write answers as JSON and read them back, so that another process can compare them later."""

from __future__ import annotations

import ast
import builtins
import dataclasses
import re
import sys
import types
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, Literal, TypeVar, Union

from gdbheap.dataclass import dataclass
from gdbheap.documents import bounded, renamed_keys
from gdbheap.errors import UsageError
from gdbheap.text import quoted

__all__ = [
    "COUNT", "MATCHING", "MORE", "ROWS", "SCHEMA", "TOTAL", "TargetRecord", "check_target", "from_json", "more_of",
    "record_lists", "renamed", "sums_of", "to_json", "type_of",
]  # fmt: skip

SCHEMA = 2
"""The version of the JSON documents: it changes when the keys or their meanings change."""

ROWS, COUNT, MORE, TOTAL = "rows", "count", "more", "total"
"""The keys of an answer that is a list: its rows, their count, how many were left out, and sums over all rows."""
MATCHING = "matching"
"""The key for the number of rows before the answer was cut. An answer has it if its key ``count`` counts something
else."""

# The names of records begin with capital letters.
LIST_OF_RECORDS = re.compile(r"\b(?:list|tuple|Sequence)\[[A-Z]")
# The largest value of a field of type float; integers have at most 64 bits.
LARGEST = float(1 << 64)
# The most characters of a value that an error shows.
LONGEST_VALUE = 100
# The deepest nesting of lists and dicts of unknown type.
DEEPEST = 8

R = TypeVar("R")


@dataclass(frozen=True)
class TargetRecord:
    """The value of the key "target" for a process or a core: which program it is, and where it runs.

    In the document it is a dict that may get more keys later.
    """

    kind: str
    pid: int | None = None
    core: str | None = None
    exe: str | None = None
    host: str | None = None
    boot_id: str | None = None
    start_time: int | None = None
    container: str | None = None
    python: str | None = None
    allocator: str | None = None
    glibc: str | None = None


def to_json(record: Any) -> dict[str, Any]:
    """Return the fields of a record as {JSON key: value}.

    Values that are records themselves are not converted or copied: there may be millions. If some keys differ from
    field names (``from`` cannot be a field), the record's class has a dict ``keys`` with these keys. Raises TypeError
    for anything but a record.
    """
    if not dataclasses.is_dataclass(record):
        raise TypeError(f"an answer holds a {type(record).__name__}")
    keys = renamed(type(record))
    return {keys.get(name, name): value for name, value in vars(record).items()} if keys else vars(record)


def from_json(kind: type[R], content: Any) -> R:
    """Return the record of class ``kind`` that was written as ``content``. Raises UsageError for other content.

    Unknown keys are ignored, and missing keys have their defaults. Strings are cut at MAX_TEXT characters. A class may
    have two methods for this: ``hints_for(content)`` returns the types of fields whose type depends on another field;
    ``from_older(content)`` returns the content of an older file with today's keys.
    """
    if not isinstance(content, Mapping):
        raise UsageError(f"a {type(content).__name__} is no {kind.__name__}")
    hints: dict[str, Any] = _hints(kind)  # type: ignore[arg-type]  # a type is hashable
    hints_for = getattr(kind, "hints_for", None)
    if hints_for is not None:
        hints = {**hints, **hints_for(content)}
    older = getattr(kind, "from_older", None)
    try:
        content = content if older is None else older(content)
    except TypeError as error:
        raise UsageError(f"not a {kind.__name__}: {error}") from None
    keys, plain = renamed(kind), _plain_types(kind)  # type: ignore[arg-type]  # a type is hashable
    # In files of format 1 each key was the name of its field.
    content = renamed_keys(content, keys) if keys else content
    found = {}
    for name, hint in hints.items():
        key = keys.get(name, name) if keys else name
        if key in content:
            value = content[key]
            is_plain = type(value) in plain[name]
            found[name] = value if is_plain else _value(hint, value, f"{kind.__name__}.{name}")
    try:
        return kind(**found)
    except TypeError as error:
        raise UsageError(f"not a {kind.__name__}: {error}") from None


def renamed(kind: type[Any]) -> dict[str, str]:
    """Return {field: key} for the fields of a record class whose keys differ from their names: its class variable
    ``keys``."""
    own = vars(kind).get("keys")
    return own if isinstance(own, dict) else {}


def sums_of(kind: type[Any]) -> tuple[str, ...]:
    """Return the fields of an answer that are sums over all its rows: its class variable ``sums``.

    In the document they are in the record ``total``.
    """
    own = vars(kind).get("sums")
    return own if isinstance(own, tuple) else ()


@cache
def record_lists(kind: Any) -> tuple[str, ...]:
    """Return the keys under which a record has a list of other records. The key ``rows`` is left out."""
    keys = renamed(kind)
    lists = (keys.get(one.name, one.name) for one in dataclasses.fields(kind) if LIST_OF_RECORDS.search(str(one.type)))
    return tuple(key for key in lists if key != ROWS)


def more_of(key: str) -> str:
    """Return the key that counts the items that were left out of the list ``key``."""
    return f"{key}_more"


@cache
def _hints(kind: Any) -> dict[str, Any]:
    """Return the types of a record's fields, by name."""
    names = {**vars(builtins), **vars(sys.modules[kind.__module__])}
    return {field.name: type_of(str(field.type), names) for field in dataclasses.fields(kind)}


@cache
def _plain_types(kind: Any) -> dict[str, frozenset[type]]:
    """Return, for each field of a record, the types of values that the field takes without conversion."""
    found = {}
    for name, hint in _hints(kind).items():
        parts = hint.__args__ if getattr(hint, "__origin__", None) is Union else (hint,)
        found[name] = frozenset(part for part in parts if part in (int, bool, type(None)))
    return found


def type_of(annotation: str, names: Mapping[str, Any]) -> Any:
    """Return the type of an annotation given as text; a name that is not in ``names`` becomes Any.

    ``typing.get_type_hints`` cannot be used, because before Python 3.10 it cannot read ``int | None``.
    """
    return _type_of(ast.parse(annotation, mode="eval").body, names)


def _type_of(node: ast.expr, names: Mapping[str, Any]) -> Any:
    if isinstance(node, ast.BinOp):
        return Union[_type_of(node.left, names), _type_of(node.right, names)]
    if isinstance(node, ast.Subscript):
        inner = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        if ast.unparse(node.value) == "Literal":
            return Literal[tuple(ast.literal_eval(part) for part in inner)]
        return types.GenericAlias(_type_of(node.value, names), tuple(_type_of(part, names) for part in inner))
    if isinstance(node, ast.Attribute):
        return getattr(_type_of(node.value, names), node.attr, Any)
    if isinstance(node, ast.Constant):
        return type_of(node.value, names) if isinstance(node.value, str) else node.value
    return names.get(node.id, Any) if isinstance(node, ast.Name) else Any


def _value(hint: Any, value: Any, where: str) -> Any:
    """Return ``value`` converted to the type ``hint``. Raises UsageError if that is impossible. ``where``: the field's
    name for the message.
    """
    origin, parts = getattr(hint, "__origin__", hint), list(getattr(hint, "__args__", ()))
    if isinstance(value, str):
        value = bounded(value)
    if origin is Any:
        return _of_any_type(value, where)
    if origin is Union:
        return _first_that_fits(parts, value, where)
    if origin is Literal and isinstance(value, str):
        # Any word is accepted: a file may come from a later release, which has more words.
        return value
    if dataclasses.is_dataclass(origin) and isinstance(origin, type):
        return from_json(origin, value)
    if origin is list and isinstance(value, list):
        return [_value(parts[0], item, where) for item in value]
    if origin is tuple and isinstance(value, (list, tuple)):
        kinds = parts[:1] * len(value) if parts[-1] is ... else parts
        if len(kinds) != len(value):
            raise UsageError(f"{where} cannot have {len(value):,} values")
        return tuple(_value(kind, item, where) for kind, item in zip(kinds, value))
    if origin is dict and isinstance(value, Mapping):
        return {bounded(key): _value(parts[1], item, where) for key, item in value.items()}
    if origin is float and type(value) in (int, float) and abs(value) <= LARGEST:
        return float(value)
    is_odd = origin is float or (origin is int and isinstance(value, bool))
    if is_odd or not isinstance(origin, type) or not isinstance(value, origin):
        raise UsageError(f"{where} cannot be {quoted(repr(value), LONGEST_VALUE)}")
    return value


def _of_any_type(value: Any, where: str, depth: int = 0) -> Any:
    """Return a value of any JSON type, with its strings cut at the maximum length. Raises UsageError if it is nested
    too deeply."""
    if depth > DEEPEST:
        raise UsageError(f"{where} is nested too deeply")
    if isinstance(value, str):
        return bounded(value)
    if isinstance(value, list):
        return [_of_any_type(item, where, depth + 1) for item in value]
    if isinstance(value, Mapping):
        return {bounded(key): _of_any_type(item, where, depth + 1) for key, item in value.items()}
    return value


def _first_that_fits(kinds: Sequence[Any], value: Any, where: str) -> Any:
    if value is None and type(None) in kinds:
        return None
    for kind in kinds:
        try:
            return _value(kind, value, where)
        except UsageError:
            continue
    raise UsageError(f"{where} cannot be {quoted(repr(value), LONGEST_VALUE)}")


def check_target(found: Mapping[str, Any]) -> None:
    """Check the description of the target in a file. Raises UsageError if a value has the wrong type."""
    from_json(TargetRecord, {"kind": "", **found})
