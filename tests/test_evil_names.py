"""Malicious names, in every command and every format: no terminal obeys one, and no line begins with one.

A program gives all its names the texts of ``support.evil``; then every text of a real answer is replaced by such names.
"""

from __future__ import annotations

import ast
import csv
import dataclasses
import gzip
import html
import io
import itertools
import json
import random
import re
import shlex
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import pytest
from support.evil import FORGED, NAMES, commands, forged, harm
from support.finding_kinds import KINDS
from support.gdb_side import batch, home, needs_gdb, own_lines
from support.programs import build, gdbheap, interpreter_of, interpreters, python_program, running

from gdbheap import errors
from gdbheap.answers.accounting.records import _hints, to_json
from gdbheap.answers.contexts import Contexts
from gdbheap.answers.stats import Stats
from gdbheap.commands.heap import Options
from gdbheap.commands.shell import streams, subjects
from gdbheap.commands.surface.needs import CALLED, FOLLOWED, SESSION, STARTED
from gdbheap.commands.surface.parser import parse
from gdbheap.commands.surface.registry import COMMANDS, SHELL_ONLY
from gdbheap.commands.surface.session import Result, TargetInfo, present
from gdbheap.contents.python.objects.database_connections import IN_FILE, IN_MEMORY
from gdbheap.errors import one_line
from gdbheap.findings.finding import Finding
from gdbheap.findings.holder.rule import (
    BUFFERING_HANDLER,
    DATABASE,
    LABEL,
    LOG_HANDLER,
    LargeHolder,
    MainHolder,
    Trait,
)
from gdbheap.first_page.ledger import Ledger
from gdbheap.following.catch import Catch
from gdbheap.following.growth import Growth
from gdbheap.report.formats.flame import flame_graph
from gdbheap.report.formats.pprof import pprof_of_tree
from gdbheap.report.formats.weighted import folded, speedscope
from gdbheap.report.page.findings import findings_section
from gdbheap.report.text.style import COLOURS, Style, terminal_text
from gdbheap.report.words.findings import keys_of, text_of
from gdbheap.report.words.heap_map import LOOKS
from gdbheap.report.words.watch import event_text
from gdbheap.sampling.current_totals import CurrentTable
from gdbheap.sampling.series import read
from gdbheap.stack_frames import StackFrame
from gdbheap.text import (
    IN_GDB,
    IN_SHELL,
    Sentence,
    csv_cell,
    file_name,
    json_text,
    named,
    printable,
    printable_record,
    quoted,
)
from gdbheap.tracing.traced_command import TracedCommand
from gdbheap.watching.messages import WatchMessage

# For each command, the command lines for each of its tables and sentences.
LINES = {
    "": ("{pid}", "{pid} --detail"),
    "arenas": ("{pid} --detail",),
    "stats": ("{pid}",),
    "holes": ("{pid} --min=4K",),
    "pins": ("{pid}",),
    "sizes": ("{pid}",),
    "chunks": ("{pid} --top=40", "{c} --by=type"),
    "pools": ("{pid} --detail",),
    "pyobjects": ("{pid} --top=60", "{pid} --by=value", "{pid} --by=line", "{pid} --by=fill", "{pid} --by=module",
                  "{pid} --by=size", "{pid} --list --type={type}", "{pid} --buffers"),
    "contexts": (),
    "trim": ("{pid}",),
    "map": ("{pid}", "{pid} --svg={new}.svg"),
    "at": ("{pid} {address} --path", "{c} {pointer}"),
    "refs": ("{pid} {address}",),
    "why": ("{pid} {address}",),
    "retained": ("{pid}", "{pid} --by=type", "{pid} --by=module", "{pid} {address}"),
    "unreachable": ("{pid}",),
    "owners": ("{pid}", "{pid} --by=block --min=100K", "{pid} --by=array", "{c} --by=global"),
    "threads": ("{pid}",),
    "tasks": ("{pid}", "{pid} --retained"),
    "duplicates": ("{pid} --holders",),
    "snapshot": ("{pid} {new}.heap",),
    "diff": ("{look} {pid}",),
    "report": ("{pid} -o {new}.html", "{log} -o {new}.html", "{look} -o {new}.html"),
    "growth": ("{pid} --duration=10ms",),
    "catch": ("{pid} malloc --duration=10ms",),
    "record": ("{pid} --duration=20ms -o {new}.csv", "{pid} --duration=20ms -o -"),
    "plot": ("{series} -o {new}.svg", "{series} -o {new}.html"),
    "top": ("{pid} {c} --count=1",),
    "ps": ("--top=all", "--heap --filter=x"),
    "processes": ("{pid} {c}",),
    "watch": ("{pid} --rss=1K --count=1 --heap --output={folder}",),
    "trace": ("-o {new}.log -- {program} x exit",),
    "replay": ("{log}",),
    "stacks": ("{log}", "{log} --format=folded", "{log} --format=svg", "{log} --format=speedscope"),
    "calls": ("{log}",),
    "export": ("{pid} -o {new} --format=csv --tables=types,mappings,threads", "{pid} -o {new}.heapsnapshot"
               " --format=heapsnapshot"),
    "sql": ("{pid} 'from types' --csv --top=all", "{pid} 'select * from threads'", "{pid} 'from findings'"),
    "shell": (),
    "doctor": ("{pid}",),
    "check": ("{pid}",),
    "check-advice": ("{pid}",),
    "info": ("{pid}",),
}  # fmt: skip
ASKED = [(noun, line) for noun, lines in LINES.items() for line in lines]
IDS = [f"{noun or 'heap'} {line}" for noun, line in ASKED]
# Commands whose lines may begin with a name: the result of a query, and the cells of CSV.
BEGIN_WITH_NAMES = ("sql", "record", "stacks")
# Commands that print something else first: the result of a query, CSV, a tree, the time and sums of processes on one
# line, the output of the traced program, and nothing (a watch prints its lines on standard error).
WITHOUT_SENTENCE = (*BEGIN_WITH_NAMES, "top", "trace", "watch")
# The rule below the titles of a table.
RULE = re.compile(r" *-{3}[- ]*")
# Texts of gdbheap that some renderers use as keys, each with a possible value.
OURS = {
    "MallocSetting.how": "set", "MallocSetting.memory": "tops", "MallocSetting.name": "NAME",
    "MallocSetting.by": "NAME", "Other.name": "NAME", "Other.whose": "malloc's", "AccessCheck.state": "ok",
    "AccessCheck.id": "mem", "Fact.fact": "glibc", "MapGroup.name": "main arena", "Operation.id": "brk",
    "Line.name": "stacks", "CurveRange.figure": "rss", "PinSums.allocator": "glibc",
    "PinSums.emptied": "would be freed", "TableFile.name": "types", "Caught.function": "malloc",
    "GrowingBuffers.origin": "set", "LargeChunks.origin": "set", "MainTop.origin": "set", "ThreadTops.origin": "set",
    "Mapped.kind": "shared-memory", "RuntimeMemory.kind": "go", "StatsRow.arena_name": "total",
    "StatsRow.what": "in use bytes", "Row.kind": "task",
    # The first page begins with the verdict.
    "MemberProcess.verdict": "x (pid 7): 8.0 MiB resident.",
}  # fmt: skip
STYLES = (
    Style(),
    Style(width=60, bold=True, rss=1 << 26),
    Style(width=20),
    Style(True, 200, True, 1 << 26, ascii=True, command=IN_SHELL),
)
# A warning is a sentence of gdbheap, which may name a command.
WARNINGS = [name for name in NAMES if "xyzzy" not in name]
SVG = "{http://www.w3.org/2000/svg}"


class Targets:
    """The targets of the command lines: a Python program with hostile names, a C program with a hostile path, and their
    files.
    """

    def __init__(self, folder: Path, pid: int, c_pid: int, pointer: str) -> None:
        self.folder, self.pid, self.c, self.pointer = folder, pid, c_pid, pointer
        self._count = itertools.count()

    @property
    def new(self) -> str:
        """Return a path that does not exist."""
        return str(self.folder / f"new-{next(self._count)}")

    @cached_property
    def log(self) -> str:
        """Return a log with stacks of the Python program."""
        log = self.new + ".log"
        done = gdbheap("trace", "-o", log, "--stacks=64K", "--", *evil_program(self.folder), "exit")
        assert done.returncode == 0, done.stderr
        return log

    @cached_property
    def look(self) -> str:
        """Return a snapshot of the Python program."""
        assert gdbheap("snapshot", str(self.pid), path := self.new + ".heap", "--blocks").returncode == 0
        return path

    @cached_property
    def series(self) -> str:
        """Return a recording of both programs."""
        done = gdbheap("record", str(self.pid), str(self.c), "--duration=30ms", "-o", path := self.new + ".csv")
        assert done.returncode == 0, done.stderr
        return path

    @cached_property
    def types(self) -> list[dict[str, Any]]:
        """Return the types of the Python program."""
        done = gdbheap("pyobjects", str(self.pid), "--top=all", "--json")
        return [row for row in json.loads(done.stdout)["rows"] if row["count"] in (40, 41)]

    @property
    def type(self) -> str:
        """Return the name of a type."""
        return str(self.types[0]["type"])

    @cached_property
    def address(self) -> str:
        """Return the address of an object of that type."""
        done = gdbheap("pyobjects", str(self.pid), "--list", "--top=all", "--json")
        rows = json.loads(done.stdout)["rows"]
        return next(f"{row['address']:#x}" for row in rows if f"\n{FORGED}" in row["type"])

    @property
    def program(self) -> str:
        """Return the path of the C program."""
        return str(evil_c_program(self.folder))

    def words(self, line: str) -> list[str]:
        """Return the words of a line of LINES, with its fields replaced."""
        return [word.format_map(_Found(self)) for word in shlex.split(line)]


class _Found(dict[str, str]):
    """The fields of Targets, each made on first use."""

    def __init__(self, targets: Targets) -> None:
        super().__init__()
        self._targets = targets

    def __missing__(self, name: str) -> str:
        return str(getattr(self._targets, name))


def evil_program(folder: Path) -> list[str]:
    """Return the command of the Python program."""
    (folder / "files").mkdir(exist_ok=True)
    kind = interpreters()[0].kind if interpreters() else "stripped"
    assert interpreter_of(kind)
    return python_program(kind, "evil_names", json.dumps(NAMES), folder / "files")


def evil_c_program(folder: Path) -> Path:
    """Return the C program, at a path with a malicious name."""
    above = folder / f"\n{FORGED}\x1b]52;c;ZXZp\x07\u202e"
    path = above / f"\n{FORGED}\x1b[31m\x9b\u2028"
    if not path.exists():
        above.mkdir()
        path.write_bytes(build("evil_names").read_bytes())
        path.chmod(0o755)
    return path


@pytest.fixture(scope="module")
def targets(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Targets]:
    """Yield both programs while they wait."""
    folder = tmp_path_factory.mktemp("targets")
    c_command = [str(evil_c_program(folder)), "\x1b[31m\nFindings: "]
    with running(evil_program(folder), folder) as program, running(c_command, folder) as other:
        yield Targets(folder, program.pid, other.pid, other.stderr.split()[0])


def test_every_command_is_asked() -> None:
    """Check that every command has command lines in LINES, so that a new one is tested."""
    assert sorted(LINES) == sorted(COMMANDS)


@pytest.mark.cases(2)
@pytest.mark.parametrize(("noun", "line"), ASKED, ids=IDS)
def test_shell(targets: Targets, noun: str, line: str) -> None:
    """Check that each command begins with a sentence, and that neither stream has a control character, a hidden
    character, or a line that begins with a name."""
    done = gdbheap(*filter(None, [noun.split()[0] if noun else ""]), *targets.words(line))
    assert done.returncode in (0, 1, 5), done.stderr
    assert not harm(done.stdout, noun not in BEGIN_WITH_NAMES), done.stdout[:3000]
    assert noun in BEGIN_WITH_NAMES or not commands(done.stdout), commands(done.stdout)
    assert not harm(done.stderr), done.stderr[:3000]
    assert noun in WITHOUT_SENTENCE or begins_with_sentence(done.stdout), done.stdout[:1000]


def begins_with_sentence(text: str) -> bool:
    """Return whether the first line of an answer is a sentence, and not the head of a table or a line of a picture."""
    first, *rest = text.splitlines() or [""]
    return first.endswith((".", ":")) and not (rest and RULE.fullmatch(rest[0])) and len(first.split()) > 2


@pytest.mark.cases(2)
@pytest.mark.parametrize(("noun", "line"), ASKED, ids=IDS)
def test_json(targets: Targets, noun: str, line: str) -> None:
    """Check that each document is printable ASCII and can be parsed."""
    if {"--csv", "-o -"} & {*line.split(), line[-4:]} or "--format=" in line and noun == "stacks":
        pytest.skip("prints something else")
    words = [*filter(None, [noun.split()[0] if noun else ""]), *targets.words(line)]
    # The words after the two dashes belong to the program.
    words.insert(words.index("--") if "--" in words else len(words), "--json")
    done = gdbheap(*words)
    lines = done.stdout.splitlines()
    assert done.returncode in (0, 1, 5) and lines, done.stderr
    assert all(line.isascii() and line.isprintable() and json.loads(line) for line in lines)


@needs_gdb
def test_gdb(targets: Targets, rng: random.Random, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Check that gdb prints the same, and that the values of its functions are printable too."""
    asked = [f"heap {noun} {line.replace('{pid}', '')}" for noun, line in ASKED
             if noun not in SHELL_ONLY and line.startswith("{pid}") and COMMANDS[noun].needs not in (FOLLOWED, CALLED)
             and "{type}" not in line and "{new}" not in line and noun != "stats"]  # fmt: skip
    lines = [" ".join(targets.words(line)) for line in rng.sample(asked, 3)]
    type_text = 'printf "%s\\n", $heap_type({address})'.replace("{address}", targets.address)
    done = batch(["-p", str(targets.pid)], [*lines, type_text], home(tmp_path_factory.mktemp("home")))
    assert done.returncode in (0, 1), done.stderr
    shown = "\n".join(line for line in done.stdout.split("\n") if not line.startswith("[New LWP"))
    assert not harm(shown), shown[:3000]
    assert not harm("\n".join(own_lines(done))), done.stderr[:3000]


class Evil:
    """Replaces texts by malicious names, one after the other."""

    def __init__(self, rng: random.Random) -> None:
        self._names = itertools.cycle(rng.sample(NAMES, len(NAMES)))

    def name(self) -> str:
        """Return the next name."""
        return next(self._names)

    def replaced(self, value: Any, where: str = "") -> Any:
        """Return a value with its texts replaced, except OURS and keys that stand for gdbheap's own names."""
        if isinstance(value, str):
            return value if where in OURS else self.name()
        if dataclasses.is_dataclass(value):
            kind = type(value)
            made = object.__new__(kind)
            vars(made).update({key: self.replaced(one, f"{kind.__name__}.{key}") for key, one in vars(value).items()})
            return made
        if isinstance(value, tuple) and hasattr(value, "_make"):
            return value._make(self.replaced(one, where) for one in value)
        if isinstance(value, (list, tuple)):
            return type(value)(self.replaced(one, where) for one in value)
        if isinstance(value, dict):
            return {key: self.replaced(one, where) for key, one in value.items()}
        assert value is None or isinstance(value, (int, float, bytes, range)), f"{where} is a {type(value).__name__}"
        return value

    def made(self, hint: Any, where: str = "") -> Any:
        """Return a made-up value of a type, from its annotations alone."""
        origin, parts = getattr(hint, "__origin__", hint), list(getattr(hint, "__args__", ()))
        if dataclasses.is_dataclass(origin) and isinstance(origin, type):
            hints = _hints(origin)
            return origin(**{key: self.made(one, f"{origin.__name__}.{key}") for key, one in hints.items()})
        if origin is Any or parts[:1] == [Finding]:
            return [] if parts else self.name()
        if origin is Literal:
            return parts[0]
        if origin is tuple and parts[-1] is not ...:
            return tuple(self.made(part, where) for part in parts)
        if origin is Literal:
            return parts[0]
        if origin in (list, tuple):
            return origin(self.made(parts[0], where) for _ in range(3))
        if origin is dict:
            return {self.name(): self.made(parts[1], where) for _ in range(3)}
        if parts:
            return self.made(next(part for part in parts if part is not type(None)), where)
        if origin is str:
            return OURS.get(where) or self.name()
        return {int: 7, float: 1.5, bool: True}[origin]


def presented(result: Result, style: Style, json: bool = False) -> str:
    """Return the printed form of a report."""
    options = dataclasses.replace(result.options, json=json)
    return terminal_text(present(dataclasses.replace(result, options=options), style), "utf-8")


def test_own_texts_exist() -> None:
    """Check that each key of OURS names a field of a record of gdbheap, so that a renamed class is noticed."""
    nodes = [
        node for path in Path(errors.__file__).parent.rglob("*.py") for node in ast.walk(ast.parse(path.read_text()))
    ]
    fields = {
        f"{node.name}.{ast.unparse(field.target)}"
        for node in nodes if isinstance(node, ast.ClassDef)
        for field in node.body if isinstance(field, ast.AnnAssign)
    }  # fmt: skip
    assert not set(OURS) - fields


@pytest.mark.cases(2)
@pytest.mark.parametrize(("noun", "line"), ASKED, ids=IDS)
def test_rendered(targets: Targets, rng: random.Random, noun: str, line: str) -> None:
    """Check a real answer with each of its texts replaced by a hostile name, in every style and in JSON."""
    command = COMMANDS[noun]
    if command.needs in (FOLLOWED, CALLED, STARTED, SESSION) or noun in ("watch", "top", "stats"):
        pytest.skip("no such answer can be made here; other tests check its records")
    result = subjects.answer(command, targets.words(line))
    for style in STYLES:
        evil = Evil(rng)
        answer, whole = evil.replaced(result.answer), evil.replaced(result.whole)
        info = dataclasses.replace(result.info, warnings=WARNINGS)
        changed = dataclasses.replace(result, answer=answer, whole=whole, info=info)
        if noun not in BEGIN_WITH_NAMES:
            found = harm(shown := presented(changed, style)) + commands(shown)
            assert not found, found[:3]
            assert style.width is not None or not forged(shown), forged(shown)[:3]
        document = presented(changed, style, json=True)
        assert document.isascii() and document.isprintable() and json.loads(document)


RECORDS: tuple[tuple[str, Any, dict[str, Any]], ...] = (
    ("growth", Growth, {"why_ended": "asked", "operations": []}),
    ("catch", Catch, {}),
    ("top", CurrentTable, {}),
    ("contexts", Contexts, {}),
    ("stats", Stats, {}),
    ("trace", TracedCommand, {}),
)


@pytest.mark.parametrize(("noun", "kind", "fixed"), RECORDS, ids=[noun for noun, *_rest in RECORDS])
def test_records(rng: random.Random, noun: str, kind: Any, fixed: dict[str, Any]) -> None:
    """Check answers that no command can give here, made from the annotations of their records."""
    command, evil = COMMANDS[noun], Evil(rng)
    for style in STYLES:
        answer = dataclasses.replace(evil.made(kind), **fixed)
        options = parse(command, ["malloc"] if noun == "catch" else [])[0]
        result = Result(command, options, TargetInfo([], WARNINGS, [], False, None), answer, answer)
        found = harm(shown := presented(result, style)) + commands(shown)
        assert not found, found[:3]
        assert style.width is not None or not forged(shown), forged(shown)[:3]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_findings(rng: random.Random, kind: Any) -> None:
    """Check each finding's text and advice in the report of ``heap``."""
    evil = Evil(rng)
    for style in STYLES:
        finding = Finding(evil.name(), 1 << 30, evil.made(kind), [], {})
        answer = dataclasses.replace(evil.made(Ledger), findings=[finding])
        result = Result(COMMANDS[""], Options(), TargetInfo([], [], [], False, None), answer, answer)
        found = harm(shown := presented(result, style)) + commands(shown)
        assert not found, found[:3]
        assert style.width is not None or not forged(shown), forged(shown)[:3]
        page = html.unescape(findings_section(printable_record(answer), Style()).body)
        assert not commands(page), page


@pytest.mark.parametrize("name", [name for name in NAMES if "xyzzy" in name])
@pytest.mark.parametrize("command", [IN_GDB, IN_SHELL])
@pytest.mark.parametrize("kind", [LABEL, LOG_HANDLER, BUFFERING_HANDLER, DATABASE])
def test_traits(kind: str, command: str, name: str) -> None:
    """Check that free text of the target is in gdbheap's quotes, which it cannot close, and contains no command of
    gdbheap."""
    examples = (IN_FILE, IN_MEMORY) if kind == DATABASE else (name,)
    for example in examples:
        holder = MainHolder(1 << 30, 1 << 30, 0.5, "a.b", "list", 9, "variable", traits=[Trait(kind, name, 3, example)])
        finding = Finding("holder", 1 << 30, LargeHolder(holder, 9))
        for said in (text_of(finding), *map(str, json.loads(json_text([to_json(keys_of(finding))]))[0].values())):
            shown = Style(command=command).filled(said)
            assert not commands(shown) and ("held by" not in shown or quoted(name) in shown), shown
        page = findings_section(dataclasses.replace(Evil(random.Random(1)).made(Ledger), findings=[finding]), Style())
        assert not commands(html.unescape(page.body))
    assert '"' not in quoted(name)[1:-1] and not quoted(name)[:-1].endswith("\\") and len(quoted(name)) < 80


def test_quotes_of_what_is_hidden() -> None:
    """Check that the replacement for a hidden text contains nothing of that text."""
    assert [quoted("<str of 1,234>"), quoted("a"), quoted("a\nb")] == ["<str of 1,234>", '"a"', '"a\\nb"']


@pytest.mark.parametrize("prompt", ["$ ", "(gdb) "])
def test_no_sentence_has_a_command(prompt: str, rng: random.Random) -> None:
    """Check that a name at the end of a line cannot make the next line look like a command to paste."""
    style = Style(width=rng.randrange(40, 120))
    for length in range(200):
        lines = style.filled(f"1. 3.0 MiB: in use, and held by {'x' * length} {prompt}gdbheap why 1 2.").splitlines()
        assert not any(line.lstrip().startswith(prompt) for line in lines), lines
        assert "".join(lines).count("gdbheap") == 1


def test_watch_events(rng: random.Random) -> None:
    """Check that each event of a watch is printed on one line, even if its names contain line breaks."""
    evil = Evil(rng)
    for kind in ("began", "ended", "killed", "unseen", "missed", "serving", "acted"):
        event = dataclasses.replace(evil.made(WatchMessage), event=kind, files={"core": evil.name()}, time=1.0)
        line = terminal_text(event_text(event, Style()), "utf-8")
        assert "\n" not in line and not harm(line), line
        # Errors and paths of files are sentences and names of gdbheap.
        ours = dataclasses.replace(event, errors=["it has ended"], files={"core": "/x.core"}, url="http://localhost")
        assert not forged(line := event_text(ours, Style())), line


def test_watch_names_files(targets: Targets, tmp_path: Path) -> None:
    """Check that a program's name becomes a part of a file name and cannot lead to another folder."""
    done = gdbheap("watch", str(targets.c), "--rss=1K", "--count=1", f"--output={tmp_path}")
    assert done.returncode == 0 and not harm(done.stderr), done.stderr
    (found,) = tmp_path.iterdir()
    assert found.name.isascii() and found.name.isprintable() and f"-{targets.c}-" in found.name


def evil_stacks(rng: random.Random) -> list[tuple[list[StackFrame], int, int]]:
    """Return stacks of frames with such names."""
    evil = Evil(rng)
    frames = [StackFrame(evil.name(), evil.name(), 7, rng.choice(("python", "native"))) for _ in NAMES]
    return [(frames[:place], 100 * place, place) for place in range(1, len(frames))]


def test_folded(rng: random.Random) -> None:
    """Check that each stack is one line, and that semicolons separate its frames."""
    stacks = evil_stacks(rng)
    lines = b"".join(folded(stacks)).decode().splitlines()
    assert not harm("\n".join(lines), plain_lines=False)
    assert len(lines) == len(stacks) and all(line.rpartition(" ")[2].isdecimal() for line in lines)
    assert sorted(line.count(";") for line in lines) == list(range(len(stacks)))


def test_speedscope(rng: random.Random) -> None:
    """Check that the file for speedscope is printable ASCII, whatever names it has."""
    text = speedscope(evil_stacks(rng), "title").rstrip("\n")
    assert text.isascii() and text.isprintable()
    assert len(json.loads(text)["shared"]["frames"]) == len(NAMES) - 1


def test_flame_graph(rng: random.Random) -> None:
    """Check that the document is XML without control characters."""
    text = flame_graph(evil_stacks(rng), NAMES[0])
    assert not harm(text, plain_lines=False)
    assert ElementTree.fromstring(text).tag == f"{SVG}svg"


def test_pprof(rng: random.Random) -> None:
    """Check that the profile's strings have no control characters."""
    data = gzip.decompress(pprof_of_tree(evil_stacks(rng)))
    assert b"Findings" in data and not any(
        bad in data for bad in (b"\x1b]", b"\n" + FORGED.encode(), "\u202e".encode())
    )


@pytest.mark.cases(1)
@pytest.mark.parametrize(
    "line", ["map {c} --svg", "map {pid} --svg", "report {pid} -o", "report {c} -o", "report {log} -o"]
)
def test_files(targets: Targets, line: str) -> None:
    """Check that pages and pictures of the programs are complete and have no control characters."""
    path = Path(f"{targets.new}.{'svg' if line.startswith('map') else 'html'}")
    done = gdbheap(*targets.words(line), str(path))
    assert done.returncode == 0, done.stderr
    text = path.read_text(encoding="utf-8")
    assert not harm(text.replace("\t", " "), plain_lines=False)
    assert path.suffix == ".html" or ElementTree.fromstring(text).tag == f"{SVG}svg"


def test_plot_of_a_formula(targets: Targets, tmp_path: Path) -> None:
    """Check that text between dollar signs in a program's name is not taken as a formula: an invalid one would end
    the command."""
    pytest.importorskip("matplotlib")
    series = tmp_path / "series.csv"
    series.write_text(Path(targets.series).read_text().replace("python", r"$x^$ \\frac"))
    done = gdbheap("plot", str(series), "-o", str(tmp_path / "plot.svg"))
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", NAMES, ids=lambda name: ascii(name)[:30])
def test_printable(name: str) -> None:
    """Check that a printed name is one line, does not change if it is made printable again, and differs from other
    names."""
    shown = printable(name)
    assert not harm(f"({shown}") and "\n" not in shown and printable(shown) == shown
    assert shown.replace("\\", "") or not name
    assert one_line(name) == one_line(one_line(name)) and not harm(f"({one_line(name)}")


def test_what_stays() -> None:
    """Check that letters of all scripts stay, with their marks."""
    for text in ("größe", "日本語", "e\u0301", "שָׁלוֹם", "ภาษาไทย", "/tmp/a b", "dict[str, int]", "\\x1b", "🦀"):
        assert printable(text) == text


ORDINARY = (
    "dict[str, int]",
    "std::map<int, std::vector<foo> >",
    "cache['Hello. World']",
    "'Reads. Writes'… (5 in all)",
    "libx.so.6",
    "'lctx' in redis-server",
    "in pymalloc's arenas, which are returned only when empty",
    "objects in the Java heap (…)",
    "größe",
    "stack of thread 12 (worker), in the frame of main: Cache",
    "{closure#0}",
    "a.b.<locals>.c",
    "/tmp/a b/c.txt",
    "日本語",
    'd["it\'s"]',
    "(anonymous namespace)::foo()",
    "Foo$Bar",
    "…/x/y",
    "<str of 1,234>",
    "-",
    "",
)


@pytest.mark.parametrize("name", ORDINARY)
def test_ordinary_names(name: str) -> None:
    """Check that ordinary names stand in sentences without a change."""
    assert named(name) == name == printable_record(name)


@pytest.mark.parametrize("name", [name for name in NAMES if "xyzzy" in name] + [FORGED, "x.", "x - y", "a|b"])
def test_names_like_sentences(name: str) -> None:
    """Check that names that look like sentences are quoted once, also as a part of a path and where they are cut;
    gdbheap's own sentences are not quoted."""
    shown = printable_record(name)
    assert shown[0] == shown[-1] == '"' and '"' not in shown[1:-1]
    assert printable_record(shown) == shown == named(shown) and not forged(f"held by {shown} of 1")
    assert not forged(one_line(f"held by {shown}", 20)) and one_line(f"held by {shown}", 20).count('"') in (0, 2)
    assert file_name(printable_record(f"/a/{name}")).count('"') == 2
    assert printable_record(Sentence(name)) == name


def test_random_texts(rng: random.Random) -> None:
    """Check that random texts become harmless, and that printable text does not change."""
    for _ in range(300):
        text = "".join(chr(rng.randrange(0x110000 if rng.random() < 0.5 else 0x300)) for _ in range(20))
        assert not harm(f"({printable(text)}"), ascii(text)


def test_last_filter(capsys: pytest.CaptureFixture[str]) -> None:
    """Check that the last filter keeps lines, and lets only gdbheap's own styles reach a terminal."""
    ours = [*COLOURS.values(), *(look.colour for look in LOOKS.values()), "\x1b[0m", "\x1b[1m"]
    text = "".join(f"{style}a" for style in ours if style)
    assert terminal_text(text, "utf-8") == text
    for name in NAMES:
        shown = terminal_text(f"{text}\n({name}\n", "utf-8")
        assert not harm(shown, plain_lines=False) and shown.startswith(f"{text}\n(")
        streams.write(name)
        streams.complain(name)
    written = capsys.readouterr()
    assert not harm(written.out, plain_lines=False) and not harm(written.err)
    assert len(written.err.splitlines()) == len(NAMES)


@pytest.mark.parametrize(
    "name", ["\x1b[", "\x1b", "\x1b]0;x\x07", "\x1b[1;31", "\x1b[38;5;1m", "\x1b[1A", "\x1b[1m\x1b[A"]
)
def test_styles_are_whole(name: str) -> None:
    """Check that a sequence that only begins like a style of gdbheap is not passed on."""
    assert not harm(terminal_text(name, "utf-8"))


def test_json_text() -> None:
    """Check that the document says the same in printable ASCII."""
    text = json_text({name: list(NAMES) for name in NAMES})
    assert text.isascii() and text.isprintable() and json.loads(text) == {name: list(NAMES) for name in NAMES}


COMPUTED = ("=1+1", "+1+1", "-1+cmd|'/c'!A0", "@SUM(1)", "\t=1", "\r=1", "\n=1", "  =1", '"=1"', "＝1", "-x")


@pytest.mark.parametrize("text", COMPUTED)
def test_computed_cells(text: str) -> None:
    """Check that a spreadsheet takes these cells as text."""
    assert csv_cell(text, safe=True) == f"'{printable(text)}" and csv_cell(text, safe=False) == printable(text)


@pytest.mark.parametrize("value", [-5, -1.5, "-5", "-1.5e3", "+7", "", None, "dict", "a=b", "0x1f", True])
def test_other_cells(value: object) -> None:
    """Check that numbers and other texts do not change."""
    assert csv_cell(value, safe=True) == value


def rows_of(text: str) -> list[list[str]]:
    """Return the rows of a CSV text."""
    return list(csv.reader(io.StringIO(text)))


def test_csv_safe_export(targets: Targets, tmp_path: Path) -> None:
    """Check the export of the program's types: one name begins with an equals sign."""
    folder = tmp_path / "tables"
    done = gdbheap("export", str(targets.pid), "-o", str(folder), "--format=csv", "--tables=types", "--csv-safe")
    assert done.returncode == 0, done.stderr
    text = (folder / "types.csv").read_text(encoding="utf-8")
    assert not harm(text, plain_lines=False)
    head, *rows = rows_of(text)
    assert all(len(row) == len(head) for row in rows)
    cells = {cell for row in rows for cell in row}
    assert not any(cell.startswith("=") for cell in cells) and any(cell.startswith("'=cmd") for cell in cells)


def test_csv_safe_sql(targets: Targets) -> None:
    """Check the names of columns too; numbers do not change."""
    pytest.importorskip("duckdb")
    query = """select type as "=1", '-1+1' as b, -5 as c, E'a\\n=1' as d from types where type like '=cmd%'"""
    done = gdbheap("sql", str(targets.pid), query, "--csv", "--csv-safe")
    assert done.returncode == 0, done.stderr
    head, row = rows_of(done.stdout)
    assert head[0] == "'=1" and row[0].startswith("'=cmd") and row[1:] == ["'-1+1", "-5", "a\\n=1"]


def test_csv_safe_record(targets: Targets, tmp_path: Path) -> None:
    """Check that a recording with safe cells can be read like one without."""
    path = tmp_path / "series.csv"
    done = gdbheap("record", str(targets.c), "--duration=20ms", "-o", str(path), "--csv-safe")
    assert done.returncode == 0, done.stderr
    assert not [cell for row in rows_of(path.read_text()) for cell in row if cell.startswith(COMPUTED[:4])]
    assert read(str(path)).samples


@pytest.mark.parametrize("words", [["sql", "1", "x"], ["export", "1", "-o", "x"], ["record", "1", "-o", "x.jsonl"]])
def test_csv_safe_without_csv(words: Sequence[str]) -> None:
    """Check that the option is refused without CSV, in a line that says what the option is for."""
    done = gdbheap(*words, "--csv-safe")
    assert done.returncode == 2 and "--csv-safe needs" in done.stderr
