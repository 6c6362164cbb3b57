"""The one JSON document of an answer. Its keys are what scripts rely on."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable
from typing import Any

__all__ = ["document", "text_of"]


def document(
    name: str, target: dict[str, Any], warnings: Iterable[str], damage: Iterable[Any], answer: Any
) -> dict[str, Any]:
    """The envelope ("command", "target", "warnings", "damage"), then the answer's own keys.

    ``answer`` and each of ``damage`` are dataclasses whose field names are the keys; records inside of them stay
    records. Raises ValueError if a key of the answer hides one of the envelope's."""
    envelope = {"command": name, "target": target, "warnings": list(warnings), "damage": list(damage)}
    keys = _keys(answer)
    hidden = envelope.keys() & keys.keys()
    if hidden:
        raise ValueError(f"an answer's keys hide the envelope's: {sorted(hidden)}")
    return {**envelope, **keys}


def text_of(content: dict[str, Any]) -> str:
    """The document on one line: among the lines that gdb itself writes, it is the one that begins with a brace."""
    return json.dumps(content, default=_keys)


def _keys(record: Any) -> dict[str, Any]:
    """The fields of a record. dataclasses.asdict() would copy each of a million of them field by field."""
    if not dataclasses.is_dataclass(record):
        raise TypeError(f"an answer holds a {type(record).__name__}")
    return vars(record)
