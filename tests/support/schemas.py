"""Check documents against the schemas of their commands, with an independent validator."""

from __future__ import annotations

from functools import cache
from typing import Any

from jsonschema import Draft202012Validator  # type: ignore[import-untyped]
from jsonschema.exceptions import best_match  # type: ignore[import-untyped]

from gdbheap.commands.surface.registry import COMMANDS
from gdbheap.report.formats.schema import schema_of

__all__ = ["assert_fits"]


def assert_fits(document: dict[str, Any]) -> None:
    """Fail with the place of the fault: an unknown key, a missing key, or a value of another type."""
    error = best_match(_validator(document["command"]).iter_errors(document))
    assert error is None, f"{document['command']}: {'/'.join(map(str, error.absolute_path))}: {error.message:.300}"


@cache
def _validator(name: str) -> Any:
    (command,) = (command for command in COMMANDS.values() if command.name == name)
    schema = schema_of({command.name: command.answer})
    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(schema)
