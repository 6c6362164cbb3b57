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

With `--json`, every command prints one JSON document on one line of standard output, and nothing else there. Sizes are
in bytes. Addresses are integers. The address of a block is the pointer that malloc returned, not the address of the
block's header. A key has the same meaning in all commands, and its meaning never changes. Later releases may add keys.
A value that does not apply, or that is unknown, is null and never 0.

- **A list is `rows`**, with three more keys: `count` (the number of all rows that match), `more` (the number of rows
  that are left out) and `total` (sums over all rows that match, including rows that are left out). Every allocator is a
  row like any other; the key `allocator` names it. An answer with several lists has a name for each list, and the key
  `NAME_more` shows how many items of the list NAME are left out.
- **`--top=N` limits the rows** in the same way as it limits a table, and has the same default. A document has at most
  64 KiB unless `--top` asks for more. Otherwise gdbheap shortens lists until the document is small enough, beginning
  with lists inside of rows. `NAME_more` next to each shortened list shows how many items are left out. `--top=all`
  removes both limits.
- **`target` is the subject of the document.** If several targets were named, the key is `targets`, a list.
- **An error is a document, too.** It has the exit status with which the command ends, and the line that people read on
  standard error: `{"command": "heap holes", "schema": 2, "error": {"status": 3, "what": "…", "next": ["…"]}}`. `next`
  lists what you can do: commands to type, or advice as text.
- `gdbheap shell TARGET --json` prints one line for each line that it reads ([sessions](sessions.md)).

In `heap diff`, and in the part of the first page that `heap --since` adds, numbers are differences: the last snapshot
minus the first.

`gdbheap schema holes` prints the JSON Schema of `heap holes --json`, and `gdbheap schema` prints the schemas of all
commands. This page shows the same content in tables. `scripts/json_docs.py --write` writes the page from the classes of
the answers' records and from one table of keys (`gdbheap/report/words/keys.py`). A name such as `holes.Hole` is the
name of a record. Snapshots and recordings have their own format numbers; gdbheap also reads the formats of earlier
releases.

## Every document
Every JSON document has the keys below, and the keys of its own command.
"""
SHARED = "\n## Records of several commands\n"
HEAD = "\n| key | type | unit | meaning |\n| --- | --- | --- | --- |\n"
# Only the first phrase of a docstring is for users; the rest is for readers of the code.
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
