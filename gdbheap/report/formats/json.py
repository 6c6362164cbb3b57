"""The one JSON document of an answer. Its keys are what scripts rely on."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

from gdbheap.answers.accounting.records import SCHEMA, to_json
from gdbheap.errors import next_steps, one_line
from gdbheap.text import json_text

__all__ = ["document", "error_document", "error_keys", "text_of"]

FINDINGS = "gdbheap.findings.finding"


def document(
    name: str, target: dict[str, Any], warnings: Iterable[str], damage: Iterable[Any], answer: Any
) -> dict[str, Any]:
    """The envelope ("command", "schema", "target", "warnings", "damage"), then the answer's own keys. It has no time in
    it: the answers to one question about a stopped target are equal, but for its container's figures, which other
    processes change.

    ``answer`` and each of ``damage`` are dataclasses whose field names are the keys; records inside of them stay
    records. Raises ValueError if a key of the answer hides one of the envelope's."""
    about = {"command": name, "schema": SCHEMA, "target": target}
    envelope = {**about, "warnings": list(warnings), "damage": list(damage)}
    keys = to_json(answer)
    hidden = envelope.keys() & keys.keys()
    if hidden:
        raise ValueError(f"an answer's keys hide the envelope's: {sorted(hidden)}")
    return {**envelope, **keys}


def error_document(name: str, status: int, what: str) -> dict[str, Any]:
    """What a command prints that cannot answer: ``status`` is its exit status, ``what`` a line that says what is wrong
    and what to do."""
    return {"command": name, "schema": SCHEMA, "error": error_keys(status, what)}


def error_keys(status: int, what: str) -> dict[str, Any]:
    """The keys of an error."""
    line = one_line(what)
    return {"status": status, "what": line, "next": next_steps(line)}


def text_of(content: dict[str, Any]) -> str:
    """The document on one line: among the lines that gdb itself writes, it is the one that begins with a brace. It is
    printable ASCII, whatever a target's names are."""
    return json_text(content, _keys)


def _keys(record: Any) -> dict[str, Any]:
    """A finding with its words, any other record as it is."""
    # Whoever has a finding has imported them; all others start faster without.
    finding = sys.modules.get(FINDINGS)
    if finding is not None and isinstance(record, finding.Finding):
        from gdbheap.report.words import findings

        record = findings.keys_of(record)
    return to_json(record)
