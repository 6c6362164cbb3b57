"""Make the JSON Schema of a command's answer from its dataclasses and from the meanings of their keys (words.keys)."""

from __future__ import annotations

import ast
import builtins
import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from importlib import import_module
from inspect import getsource
from typing import Any, Literal, Union

from gdbheap.answers.accounting.records import (
    COUNT,
    MATCHING,
    MORE,
    ROWS,
    SCHEMA,
    TOTAL,
    TargetRecord,
    more_of,
    record_lists,
    renamed,
    sums_of,
    type_of,
)
from gdbheap.dataclass import dataclass
from gdbheap.findings.finding import Finding
from gdbheap.report.words.findings import FindingKeys
from gdbheap.report.words.keys import Key, key_of
from gdbheap.targets.target import Damage

__all__ = [
    "Field",
    "answers_of",
    "description",
    "envelope",
    "fields_of",
    "name_of",
    "records_below",
    "refused",
    "schema_of",
    "written_as",
]

DIALECT = "https://json-schema.org/draft/2020-12/schema"
# JSON's names for the types that JSON and Python have in common.
PLAIN = {int: "integer", float: "number", str: "string", bool: "boolean", type(None): "null", dict: "object"}
LISTS = (list, tuple, Sequence)
TARGETS = ("target", "targets")
LEFT_OUT = "how many items were left out of the list that the key names; the key exists only if some were left out"


@dataclass(frozen=True)
class Field:
    """A key of a record: its name, the type of its value, and its meaning."""

    key: str
    type: Any
    meaning: Key


@dataclass(frozen=True)
class Envelope:
    """The keys that every JSON document of an answer has, in addition to the answer's own keys."""

    command: str
    schema: int
    target: TargetRecord | None
    targets: list[TargetRecord]
    warnings: list[str]
    damage: list[Damage]


@dataclass(frozen=True)
class Error:
    """Why a command could not answer: its exit status, one line that says what is wrong, and commands to try next."""

    status: int
    what: str
    next: list[str]


@dataclass(frozen=True)
class ErrorDocument:
    """The JSON document of a command that could not answer."""

    command: str
    schema: int
    error: Error


def answers_of(answer: Callable[..., Any]) -> list[type[Any]]:
    """Return the record classes of a command's answers, as JSON documents contain them.

    ``answer``: the command's function, whose return annotation names the classes.
    """
    found = type_of(answer.__annotations__["return"], _names(answer.__module__))
    kinds = list(found.__args__) if getattr(found, "__origin__", None) is Union else [found]
    return [_in_document(kind) for kind in kinds]


def _in_document(kind: Any) -> Any:
    form = getattr(kind, "as_document", None)
    return kind if form is None else type_of(form.__annotations__["return"], _names(kind.__module__))


def fields_of(kind: type[Any]) -> list[Field]:
    """Return the keys of a record, in their order. For an answer with rows, the rows come first, then their number and
    sums."""
    keys = renamed(kind)
    names = _names(kind.__module__)
    found = {keys.get(field.name, field.name): type_of(str(field.type), names) for field in dataclasses.fields(kind)}
    if ROWS in found:
        sums = {key: found.pop(key) for key in sums_of(kind)}
        own = found.pop(TOTAL, type(None))
        found = {
            ROWS: found.pop(ROWS), COUNT: int, MORE: int, TOTAL: _total(kind) if sums else own,  # type: ignore[arg-type]  # a type is hashable
            **{key: type for key, type in found.items() if key not in (COUNT, MATCHING)},
        }  # fmt: skip
    return [Field(key, type, key_of(name_of(kind), key)) for key, type in found.items()]


@cache
def _total(kind: Any) -> type[Any]:
    """Return a record for the key "total" of an answer: it has the answer's fields that are sums."""
    sums = sums_of(kind)
    fields = [(field.name, str(field.type)) for field in dataclasses.fields(kind) if field.name in sums]
    found = dataclasses.make_dataclass(f"{kind.__name__}Total", fields, frozen=True)
    found.__module__, found.__doc__ = kind.__module__, "Sums over all rows."
    return found


def name_of(kind: type[Any]) -> str:
    """Return the name of a record in a schema: its file and its class, such as "holes.Hole"."""
    return f"{kind.__module__.rpartition('.')[2]}.{kind.__name__}"


def written_as(kind: Any) -> type[Any]:
    """Return the class whose fields JSON shows for a record of class ``kind``: FindingKeys for Finding, else
    ``kind``."""
    found: type[Any] = FindingKeys if kind is Finding else kind
    return found


def records_below(kinds: Sequence[type[Any]]) -> list[type[Any]]:
    """Return the record classes ``kinds`` and all record classes that they contain, each once, in the order of their
    keys."""
    found: dict[type[Any], None] = {}
    _collect(kinds, found)
    return list(found)


def _collect(kinds: Sequence[type[Any]], found: dict[type[Any], None]) -> None:
    for kind in kinds:
        if kind not in found:
            found[kind] = None
            _collect([inner for field in fields_of(kind) for inner in _records_in(field.type)], found)


def _records_in(hint: Any) -> Iterator[type[Any]]:
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        yield written_as(hint)
    for part in getattr(hint, "__args__", ()):
        yield from _records_in(part)


def schema_of(commands: Mapping[str, Callable[..., Any]]) -> dict[str, Any]:
    """Return the schema of these commands' documents. ``commands``: for each name (the key "command"), the function
    that answers."""
    answers = {name: answers_of(answer) for name, answer in commands.items()}
    below = records_below([Envelope, ErrorDocument, *(kind for kinds in answers.values() for kind in kinds)])
    documents = [_document(name, kind) for name, kinds in answers.items() for kind in kinds]
    refusals = [_named(_object(fields_of(ErrorDocument)), name) for name in answers]
    one = _either(documents[0], refusals[0]) if len(documents) == 1 else {"anyOf": [*documents, *refusals]}
    records = {name_of(kind): _record(kind) for kind in below if kind not in _of_documents(answers)}
    return {"$schema": DIALECT, "title": " · ".join(answers), **one, "$defs": records}


def _of_documents(answers: Mapping[str, list[type[Any]]]) -> set[type[Any]]:
    """Return the records whose keys are at the top level of a document."""
    return {Envelope, ErrorDocument, *(kind for kinds in answers.values() for kind in kinds)}


def envelope() -> type[Any]:
    """Return the record class that describes the keys of every answer's JSON document."""
    return Envelope


def refused() -> type[Any]:
    """Return the record class that describes the JSON document of a failed command."""
    return ErrorDocument


def _document(name: str, kind: type[Any]) -> dict[str, Any]:
    found = _object([*fields_of(Envelope), *fields_of(kind)])
    lists = [more_of(key) for key in record_lists(kind)]  # type: ignore[arg-type]  # a type is hashable
    found["required"] = [*(key for key in found["required"] if key not in TARGETS), *lists]
    # A document has exactly one of the two keys.
    found["oneOf"] = [{"required": [key]} for key in TARGETS]
    return _named(found, name)


def _named(found: dict[str, Any], name: str) -> dict[str, Any]:
    """Return the schema of a document with the two values that all documents of a command share.

    These values are the name of the command and the number of the schema.
    """
    for key, value in (("command", name), ("schema", SCHEMA)):
        found["properties"][key].update({"const": value})
    return found


def _either(document: dict[str, Any], refusal: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a document that is either an answer or an error. It allows the keys of both, and requires
    the keys of one of them.
    """
    needed = {key: document.pop(key) for key in ("required", "oneOf")}
    properties = {**document["properties"], "error": refusal["properties"]["error"]}
    both = {**document, "properties": properties}
    return {
        **both,
        "if": {"required": ["error"]},
        "then": {"maxProperties": len(refusal["properties"])},
        "else": needed,
    }


def _record(kind: type[Any]) -> dict[str, Any]:
    return _object(fields_of(kind))


def _object(fields: Sequence[Field]) -> dict[str, Any]:
    properties: dict[str, Any] = {}
    for field in fields:
        properties[field.key] = _property(field)
        if field.key != ROWS and _is_list(field.type):
            properties[more_of(field.key)] = {"type": "integer", "description": LEFT_OUT, "unit": "number"}
    required = [field.key for field in fields]
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def _is_list(hint: Any) -> bool:
    """Return whether a value of this type is a list, or a list or None."""
    return any(getattr(part, "__origin__", None) in LISTS for part in (hint, *getattr(hint, "__args__", ())))


def _property(field: Field) -> dict[str, Any]:
    unit = {"unit": field.meaning.unit} if field.meaning.unit else {}
    return {**_value(field.type), "description": description(field), **unit}


def description(field: Field) -> str:
    """Return the meaning of a key, and the cases in which it is null."""
    meaning = field.meaning
    return f"{meaning.text}; null: {meaning.null}" if may_be_null(field.type) else meaning.text


def may_be_null(hint: Any) -> bool:
    """Return whether a value of the type may be None."""
    return type(None) in getattr(hint, "__args__", ())


def _value(hint: Any) -> dict[str, Any]:
    """Return the schema of values of the type ``hint``. Raises KeyError for a type that JSON does not have."""
    origin, parts = getattr(hint, "__origin__", hint), list(getattr(hint, "__args__", ()))
    if origin is Any:
        return {}
    if origin is Union:
        return _one_of([_value(part) for part in parts])
    if origin is Literal:
        return {"enum": parts}
    if origin in LISTS:
        return _list(parts)
    if origin is dict:
        return {"type": "object", "additionalProperties": _value(parts[1])}
    if dataclasses.is_dataclass(origin):
        return {"$ref": f"#/$defs/{name_of(written_as(origin))}"}
    return {"type": PLAIN[origin]}


def _one_of(schemas: list[dict[str, Any]]) -> dict[str, Any]:
    if all(schema.keys() == {"type"} for schema in schemas):
        return {"type": [schema["type"] for schema in schemas]}
    return {"anyOf": schemas}


def _list(parts: list[Any]) -> dict[str, Any]:
    if len(parts) == 1 or parts[1] is ...:
        return {"type": "array", "items": _value(parts[0])}
    return {"type": "array", "prefixItems": [_value(part) for part in parts], "minItems": len(parts), "items": False}


@cache
def _names(module: str) -> dict[str, Any]:
    """Return the names that annotations in a module may use. They include names that are imported only for type
    checkers."""
    loaded = import_module(module)
    found = {**vars(builtins), **vars(loaded)}
    blocks = [node for node in ast.parse(getsource(loaded)).body if isinstance(node, ast.If)]
    for node in (inner for block in blocks if ast.unparse(block.test) == "TYPE_CHECKING" for inner in block.body):
        if isinstance(node, ast.ImportFrom) and node.module:
            source = __import__(node.module, fromlist=[alias.name for alias in node.names])
            found.update({alias.asname or alias.name: getattr(source, alias.name) for alias in node.names})
    return found
