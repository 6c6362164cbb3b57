"""Print docs/json.md, from the records of answers and the meanings of their keys (gdbheap/report/words/keys.py);
with --write, write the file.

Run it with the Python that gdbheap is installed in.
"""

from __future__ import annotations

import dataclasses
import re
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, Union

from gdbheap.commands.surface.declaration import AnyCommand
from gdbheap.commands.surface.registry import COMMANDS
from gdbheap.report.formats import schema
from gdbheap.report.formats.schema import Field, answers_of, fields_of, name_of, records_below

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "json.md"
INTRODUCTION = """# JSON

Every command has `--json`: one document on one line of standard output, and nothing else there. Sizes are in bytes,
addresses are integers, and malloc's pointer is meant, not the header's. A key means the same in all commands, and never
changes its meaning; new ones may come. What does not apply, or is not known, is null and never 0.

- **A list is `rows`**, with `count` (all that match), `more` (how many are left out) and `total` (sums over all that
  match, also over those that are left out). Every allocator is a row like any other; `allocator` says which. An answer
  with several lists names each, and `NAME_more`, by how many items it is longer.
- **`--top=N` cuts the rows** as it cuts a table, and has the same default. A document of more than 64 KiB that nobody
  asked for is not written: lists are cut until it is smaller, those inside of rows first, and `NAME_more` beside each
  says so. `--top=all` lifts both.
- **`target` says what the document is about**; where several were asked it is `targets`, a list.
- **An error is a document too**, with the exit status that the command ends with, and the line for people on standard
  error: `{"command": "heap holes", "schema": 2, "error": {"status": 3, "what": "…", "next": ["…"]}}`. `next` is what to
  do: commands to type, or words.
- `gdbheap shell TARGET --json` answers each line that it reads with one line ([sessions](sessions.md)).

In `heap diff` and in what `heap --since` says, numbers are differences: the last snapshot minus the first.

`gdbheap schema holes` prints the JSON Schema of what `heap holes --json` prints, `gdbheap schema` that of all commands.
This page says the same in tables; it is written by `scripts/json_docs.py --write` from the records that answers are
made of and one table of keys (`gdbheap/report/words/keys.py`). A name such as `holes.Hole` is that of a record.
Snapshots and series have format numbers of their own; those of earlier releases are read.

## Every document
Every JSON document has the keys below, and the keys of its own command.
"""
SHARED = "\n## Records of several commands\n"
HEAD = "\n| key | type | unit | what it says |\n| --- | --- | --- | --- |\n"
# The rest of a docstring is for readers of the code.
END_OF_PHRASE = re.compile(r"[.:;](?:\s|$)| \(")


def page() -> str:
    """Return the whole page."""
    common = records_below([schema.envelope(), schema.refused()])
    below = {noun: records_below(answers_of(command.answer)) for noun, command in COMMANDS.items()}
    times = Counter(kind for kinds in below.values() for kind in kinds)
    own = {noun: [kind for kind in kinds if times[kind] == 1 and kind not in common] for noun, kinds in below.items()}
    shared = sorted((kind for kind in times if times[kind] > 1 and kind not in common), key=name_of)
    sections = (_section(COMMANDS[noun], kinds) for noun, kinds in own.items())
    return "".join([INTRODUCTION, *map(_record, common), *sections, SHARED, *map(_record, shared)])


def _section(command: AnyCommand, kinds: Sequence[type[Any]]) -> str:
    return f"\n## {command.name}\n{command.summary}.\n" + "".join(map(_record, kinds))


def _record(kind: type[Any]) -> str:
    return "".join([f"\n### {name_of(kind)}\n{_summary(kind)}\n", HEAD, *map(_row, fields_of(kind))])


def _summary(kind: type[Any]) -> str:
    """Return the first phrase of the docstring of a record."""
    text = " ".join((kind.__doc__ or "").split()).replace("``", "`")
    return f"{END_OF_PHRASE.split(text, maxsplit=1)[0]}."


def _row(field: Field) -> str:
    unit = field.meaning.unit or ""
    return f"| `{field.key}` | {_type(field.type)} | {unit} | {schema.description(field)} |\n"


def _type(hint: Any) -> str:
    """Return the readable name of a type."""
    origin, parts = getattr(hint, "__origin__", hint), list(getattr(hint, "__args__", ()))
    if origin is Any:
        return "anything"
    if origin is Union:
        return " or ".join(map(_type, parts))
    if origin is Literal:
        return " or ".join(f"`{word}`" for word in parts)
    if origin in schema.LISTS:
        return f"list of {_type(parts[0])}"
    if origin is dict:
        return f"object of {_type(parts[1])}"
    if dataclasses.is_dataclass(origin):
        name = name_of(schema.written_as(origin))
        return f"[{name}](#{name.replace('.', '').lower()})"
    return schema.PLAIN[origin]


def main() -> None:
    """Print the page, or write it."""
    if sys.argv[1:] == ["--write"]:
        PAGE.write_text(page(), encoding="utf-8")
    elif sys.argv[1:]:
        raise SystemExit("usage: json_docs.py [--write]")
    else:
        sys.stdout.write(page())


if __name__ == "__main__":
    main()
