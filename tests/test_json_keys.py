"""The keys of JSON: each has one type, one unit and one meaning in the whole product, and answers fit their schemas."""

from __future__ import annotations

import dataclasses
import json
import re
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, Union

import pytest
from support.nouns import ADDRESSED, GRAPHS, PLAIN
from support.programs import GCORE, KINDS, Running, c_program, python_program, running, said
from support.schemas import assert_fits
from support.scripts import script

from gdbheap.commands.surface.registry import COMMANDS
from gdbheap.report.formats import schema
from gdbheap.report.formats.schema import (
    answers_of,
    envelope,
    fields_of,
    may_be_null,
    name_of,
    records_below,
    refused,
)
from gdbheap.report.words.keys import CHANGES, KEYS, OTHERWISE, VALUES

ROOT = Path(__file__).resolve().parent.parent
RECORDS = records_below(
    [envelope(), refused(), *(kind for one in COMMANDS.values() for kind in answers_of(one.answer))]
)
FIELDS = [(name_of(kind), field) for kind in RECORDS for field in fields_of(kind)]
UNITS = {"", "%", "address", "bytes", "bytes/s", "nanoseconds", "number", "seconds", "share", "ticks"}
# Number of keys with another meaning in these records; it may only decrease.
OTHER_MEANINGS = 10
# A program whose calls are recorded.
PROGRAM = ("--", sys.executable, "-c", "print(list(range(10**5))[-1])")


def kind_of(hint: Any) -> str:
    """Return the JSON type of a value, without null; for a list, that of its items."""
    parts = [part for part in getattr(hint, "__args__", ()) if part not in (type(None), ...)]
    origin = getattr(hint, "__origin__", hint)
    if origin is Union:
        return " or ".join(sorted(set(map(kind_of, parts))))
    if origin is Literal:
        return "string"
    if origin in schema.LISTS:
        return f"list of {kind_of(parts[0])}"
    if dataclasses.is_dataclass(origin) or origin is dict and parts[1] is Any:
        return "object"
    if origin is dict:
        return f"object of {kind_of(parts[1])}"
    return "anything" if origin is Any else schema.PLAIN[origin]


def has_null(hint: Any) -> bool:
    """Return whether a value, or an item of a list, may be null."""
    return hint is type(None) or any(map(has_null, getattr(hint, "__args__", ())))


def test_one_sentence_each() -> None:
    """Check that each key of each record has a meaning, that each meaning has a key, and that no meaning is declared
    twice."""
    names = {f"{name}.{field.key}" for name, field in FIELDS}
    assert set(OTHERWISE) <= names and set(KEYS) == {
        field.key for name, field in FIELDS if f"{name}.{field.key}" not in OTHERWISE
    }
    assert [name for name, meaning in OTHERWISE.items() if meaning == KEYS.get(name.rpartition(".")[2])] == []
    assert len(OTHERWISE) <= OTHER_MEANINGS, "a new record needs no second meaning of a key"
    assert set(VALUES) <= names - set(OTHERWISE) and CHANGES <= {name for name, _ in FIELDS}
    phrases = [meaning.text for meaning in (*KEYS.values(), *OTHERWISE.values())]
    assert [text for text in phrases if not text or text.endswith(".") or not text.isprintable()] == []


def test_one_type_each() -> None:
    """Check that a key with one meaning has values of one type."""
    found: dict[str, set[str]] = defaultdict(set)
    for name, field in FIELDS:
        if f"{name}.{field.key}" not in OTHERWISE and field.type is not type(None):
            found[field.key].add(kind_of(field.type))
    assert {key: kinds for key, kinds in found.items() if len(kinds) > 1} == {}


def test_units_and_null() -> None:
    """Check that exactly numbers have a unit, and that exactly values that may be null say when."""
    null = {field.meaning.null for _, field in FIELDS if has_null(field.type)}
    for name, field in FIELDS:
        unit, where = field.meaning.unit, f"{name}.{field.key}"
        assert unit in UNITS, where
        assert bool(unit) == any(word in kind_of(field.type) for word in ("integer", "number")), where
        assert field.meaning.null or not may_be_null(field.type), where
        assert not field.meaning.null or field.meaning.null in null, where


def test_names_of_records() -> None:
    """Check that no two records have the same name, and that no key of an answer hides one of the envelope."""
    assert [name for name, times in Counter(map(name_of, RECORDS)).items() if times > 1] == []
    own = {field.key for field in fields_of(envelope())}
    for command in COMMANDS.values():
        assert not any(own & {field.key for field in fields_of(kind)} for kind in answers_of(command.answer))


def test_page() -> None:
    """Check that scripts/json_docs.py wrote docs/json.md after the last change of a record."""
    assert (ROOT / "docs" / "json.md").read_text(encoding="utf-8") == script("json_docs").page(), (
        "run scripts/json_docs.py --write"
    )


def test_schema_is_printed() -> None:
    """Check the printed schemas of one command and of all; another word gives an error in one line."""
    holes = json.loads(said("schema", "holes").stdout)
    # The name of the command in a document is accepted too.
    assert [json.loads(said("schema", *words).stdout) for words in (["heap holes"], ["heap", "holes"])] == [holes] * 2
    assert holes["properties"]["command"]["const"] == "heap holes"
    assert holes["$defs"]["holes.HolesTotal"]["properties"]["bytes"]["unit"] == "bytes"
    assert {"rows", "count", "more", "total", "target", "targets", "error"} <= holes["properties"].keys()
    assert json.loads(said("schema", "calls").stdout)["properties"]["command"]["const"] == "gdbheap calls"
    every = json.loads(said("schema").stdout)["anyOf"]
    assert {one["properties"]["command"]["const"] for one in every} == {one.name for one in COMMANDS.values()}
    wrong = said("schema", "hols")
    assert wrong.returncode == 2 and re.fullmatch(r".*did you mean 'holes'\?\n", wrong.stderr)


def test_what_does_not_fit() -> None:
    """Check that an unknown key, a missing key and a value of another type are found."""
    document = {"command": "gdbheap sql", "schema": 2, "target": None, "warnings": [], "damage": [], "columns": []}
    document = {**document, "columns_more": 0, "count": 0, "more": 0, "total": None}
    wrong_ones: list[dict[str, Any]] = [
        {}, {"rows": [], "most": 0}, {"rows": {}}, {"rows": [], "columns": [{"name": "a", "sql_type": 3}]},
        {"rows": [], "targets": []}, {"rows": [], "error": {"status": 1, "what": "", "next": []}},
    ]  # fmt: skip
    for wrong in wrong_ones:
        with pytest.raises(AssertionError, match="gdbheap sql"):
            assert_fits({**document, **wrong})
    assert_fits({**document, "rows": [[1, "a", None]]})
    error = {"status": 2, "what": "a", "next": ["b"]}
    assert_fits({"command": "gdbheap sql", "schema": 2, "error": error})
    with pytest.raises(AssertionError, match="gdbheap sql"):
        assert_fits({"command": "gdbheap sql", "schema": 2, "error": {**error, "more": 1}})


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Yield a Python process that holds objects."""
    with running(python_program(KINDS[0], "pools", 1, 2000), tmp_path_factory.mktemp("keys")) as found:
        yield found


def answered(*words: str, status: int = 0) -> dict[str, Any]:
    """Return the document of a command line, after a check against its schema."""
    end = words.index("--") if "--" in words else len(words)
    done = said(*words[:end], "--json", *words[end:])
    assert done.returncode == status, f"{words}: {done.returncode}\n{done.stderr}"
    found = [json.loads(line) for line in (done.stdout + done.stderr).splitlines() if line.startswith("{")]
    for document in found:
        assert_fits(document)
    last: dict[str, Any] = found[-1]
    return last


@pytest.fixture(scope="module")
def core(target: Running, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return a core of the process."""
    if GCORE is None:
        pytest.skip("no gcore")
    path = tmp_path_factory.mktemp("keys") / "core"
    subprocess.run([GCORE, "-o", str(path), str(target.pid)], check=True, capture_output=True, timeout=120)
    return f"{path}.{target.pid}"


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return a log of the calls of a Python process, with stacks."""
    path = str(tmp_path_factory.mktemp("keys") / "calls.log")
    assert answered("trace", "--stacks", "--pymalloc", "-o", path, *PROGRAM)["calls"]
    return path


@pytest.fixture(scope="module")
def snapshot(target: Running, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return a snapshot of the process, with all parts."""
    path = str(tmp_path_factory.mktemp("keys") / "one.heap")
    assert answered("snapshot", str(target.pid), path, "--blocks", "--owners")["block_count"]
    return path


@pytest.mark.parametrize("noun", [*PLAIN, *GRAPHS], ids=lambda noun: noun or "heap")
def test_of_python(noun: str, target: Running) -> None:
    """Check that the answers about a Python process have only declared keys and types."""
    answered(*filter(None, [noun]), str(target.pid))


@pytest.mark.parametrize(
    "line",
    [
        "pyobjects --by=size", "pyobjects --by=value", "pyobjects --by=fill", "pyobjects --list --top=5",
        "pyobjects --buffers", "pyobjects --type=type --group=__name__", "chunks --by=type", "tasks --list",
        "owners --by=block", "owners --by=array", "holes --fit=9M --path", "pools --detail", "arenas --detail",
        "heap --detail", "retained --by=type", "threads --values",
    ],
)  # fmt: skip
def test_with_options(line: str, target: Running) -> None:
    """Check the keys of other tables, which options select."""
    noun, *options = line.split()
    answered(noun, str(target.pid), *options)


@pytest.mark.parametrize("noun", ["", "check", "info", "arenas", "owners", "at"])
def test_of_a_core(noun: str, core: str) -> None:
    """Check that a core has no pid of this machine and no control group."""
    where = ["0x1000"] if noun == "at" else []
    if where:
        where = [hex(answered("chunks", core, "--state=used", "--top=1")["rows"][0]["address"])]
    assert answered(*filter(None, [noun]), core, *where)["target"]["core"]


@pytest.mark.parametrize("noun", ADDRESSED)
def test_of_an_address(noun: str, target: Running) -> None:
    """Check the answers about one block, or one object."""
    address = answered("pyobjects", str(target.pid), "--list", "--type=dict", "--top=1")["rows"][0]["address"]
    answered(noun, str(target.pid), hex(address))


def test_of_snapshots(snapshot: str, target: Running) -> None:
    """Check that a snapshot has a page, and the changes since."""
    answered(snapshot)
    assert len(answered("diff", snapshot, str(target.pid))["targets"]) == 2
    answered(str(target.pid), "--since", snapshot)


def test_of_a_program_in_c(tmp_path: Path) -> None:
    """Check the keys of the answers about a program without Python."""
    with running(c_program("roots", 3), tmp_path) as target:
        for noun in ("", "arenas", "sizes", "owners", "unreachable", "check", "map", "pins", "threads --c-frames"):
            answered(*noun.split(), str(target.pid))
        answered("trim", str(target.pid), "--yes")
        answered("stats", str(target.pid))


def test_of_many(target: Running) -> None:
    """Check the keys of the answers about several processes."""
    answered("ps")
    answered("processes", str(target.pid))
    answered("top", str(target.pid), "--count=1")
    answered("doctor", str(target.pid))
    answered("doctor")


def test_of_calls(log: str) -> None:
    """Check the keys of the answers about a log of calls."""
    answered("calls", log, "--growth=1")
    answered("stacks", log)
    answered("replay", log)


def test_of_what_is_written(target: Running, snapshot: str, tmp_path: Path) -> None:
    """Check the keys of the answers of commands that write files."""
    series = str(tmp_path / "series.csv")
    answered("record", str(target.pid), "--every=20ms", "--duration=100ms", "-o", series)
    answered("plot", series, "-o", str(tmp_path / "series.svg"))
    answered("report", str(target.pid), "-o", str(tmp_path / "page.html"))
    answered("export", snapshot, "-o", str(tmp_path / "tables"), "--format=csv")
    answered("sql", snapshot, "select * from ledger limit 1")


def test_of_what_runs(target: Running, tmp_path: Path) -> None:
    """Check the keys of the answers of commands that follow a process."""
    answered("growth", str(target.pid), "--duration=200ms")
    answered("catch", str(target.pid), "realloc", "--duration=200ms")
    answered("watch", str(target.pid), "--rss=1", "--count=1", f"--output={tmp_path}")
