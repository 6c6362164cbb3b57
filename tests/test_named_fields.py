"""Which fields of answers no test names: a list that may only shrink."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any

from gdbheap.commands.surface.registry import COMMANDS
from gdbheap.report.formats.schema import answers_of, envelope, fields_of, records_below, refused, renamed

TESTS = Path(__file__).resolve().parent
# A name in quotation marks, of an attribute, or of an argument.
NAMED = re.compile(r"[\"'](\w+)[\"']|\.(\w+)|\b(\w+)=")
# A test that compares one of these with anything removes it.
UNNAMED = (
    "allocator_frames", "at_peak", "free_spans", "freezing", "is_ours", "largest_block", "theirs", "unpatched",
    "whole_shape",
)  # fmt: skip


def keys() -> set[frozenset[str]]:
    """Return the names of each field of each answer: in JSON, and of the record if that is another one."""
    found = set()
    every = [envelope(), refused(), *(kind for one in COMMANDS.values() for kind in answers_of(one.answer))]
    for kind in records_below(every):
        records: Any = kind
        names = {renamed(records).get(one.name, one.name): one.name for one in dataclasses.fields(records)}
        found |= {frozenset({field.key, names.get(field.key, field.key)}) for field in fields_of(kind)}
    return found


def test_every_field_is_named() -> None:
    """Check that a new field is in some test, and that the list has no field that is."""
    words: set[str] = set()
    for path in TESTS.rglob("*.py"):
        if path != Path(__file__).resolve():
            words.update(word for match in NAMED.findall(path.read_text(encoding="utf-8")) for word in match)
    left = {min(names, key=len) for names in keys() if not names & words}
    assert sorted(left) == sorted(UNNAMED), sorted(left)
