"""The declarations: one file for each command, a command's own options, and its needs.

Made-up commands are used where no real one exists yet.
"""

from __future__ import annotations

import ast
import json
import os
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import pytest
from support.nouns import ADDRESSED, COMPARING, FOLLOWING, GRAPHS, LIVE_ONLY, PARTICULAR, PLAIN, SHELL_ONLY, WRITING
from support.programs import GCORE, Running, c_program, running

from gdbheap.commands.shell import commands as shell
from gdbheap.commands.shell import subjects
from gdbheap.commands.shell.line import CommandLine
from gdbheap.commands.surface import registry
from gdbheap.commands.surface.declaration import (
    ADDRESS,
    FILE,
    FUNCTION,
    QUERY,
    SOME_ADDRESS,
    AnyCommand,
    Command,
    Shown,
)
from gdbheap.commands.surface.help import help_of_its_own, help_text
from gdbheap.commands.surface.needs import (
    FILES,
    LOOKS,
    NOTHING,
    PROCESS,
    PROCESSES,
    PROGRAMS,
    STARTED,
    TWO_TARGETS,
    Needs,
)
from gdbheap.commands.surface.options import Common, Several, valued
from gdbheap.commands.surface.parser import parse
from gdbheap.errors import GdbheapError, UsageError
from gdbheap.heap import Heap

ROOT = Path(__file__).resolve().parent.parent
COMMANDS = registry.COMMANDS


def test_one_file_each() -> None:
    """Check that the files commands/*.py are exactly the registered commands."""
    files = {path.stem for path in (ROOT / "commands").glob("*.py")} - {"__init__"}
    assert sorted(command.answer.__module__ for command in COMMANDS.values()) == sorted(
        f"gdbheap.commands.{stem}" for stem in files
    )


def test_groups_hold_every_command() -> None:
    """Check that the lists that other tests use leave out no command."""
    groups = (PLAIN, GRAPHS, PARTICULAR, ADDRESSED, LIVE_ONLY, WRITING, COMPARING, FOLLOWING, SHELL_ONLY)
    assert sorted(noun for group in groups for noun in group) == sorted(COMMANDS)


def test_registry_knows_shell_only() -> None:
    """Check that the list of nouns that gdb does not import agrees with the declarations."""
    assert frozenset(SHELL_ONLY) == registry.SHELL_ONLY


def plumbing() -> Iterator[Path]:
    """Yield the files that serve every command: those in folders below commands/."""
    yield from sorted((ROOT / "commands").glob("*/**/*.py"))


@pytest.mark.parametrize("path", list(plumbing()), ids=lambda path: f"{path.parent.name}/{path.name}")
def test_nothing_asks_for_a_noun(path: Path) -> None:
    """Check that no code compares a command's noun with a word: all differences are in declarations."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Compare):
            words = [one.value for one in ast.walk(node) if isinstance(one, ast.Constant)]
            assert not set(words) & (set(COMMANDS) - {""}), ast.unparse(node)
            assert not any(isinstance(one, ast.Attribute) and one.attr == "noun" for one in ast.walk(node))


@pytest.mark.parametrize("noun", COMMANDS)
def test_options_are_its_own(noun: str) -> None:
    """Check that an options object has only the fields of the command and of all commands."""
    command = COMMANDS[noun]
    options, _, _ = parse(command, [])
    own = {option.key for option in command.own_options}
    place = {"address", "name", "share"}
    known = {ADDRESS: place, SOME_ADDRESS: place, FILE: {"file"}, FUNCTION: {"function"}, QUERY: {"query"}}
    argument = known[command.argument] if command.argument is not None else set()
    assert {field.name for field in fields(options)} == own | argument | {field.name for field in fields(Common)}
    assert type(options) is command.options


@dataclass
class Counted:
    """The answer of a made-up command."""

    what: list[str]
    least: int


@dataclass
class Options(Common):
    """The options of a made-up command."""

    least: int = valued("--least", "N", "the least", 7, int)


def made_up(needs: Needs[Any], names: Any) -> AnyCommand:
    """Return a command that answers with the names of its subjects."""

    def answer(subject: Any, options: Options) -> Counted:
        return Counted(names(subject), options.least)

    def render(shown: Shown[Counted, Options]) -> str:
        return " ".join(shown.answer.what)

    example = f"{'gdbheap' if needs.shell_only else 'heap'} made-up --least=3"
    return Command(
        noun="made-up", summary="Show what was given", text="A text.", example=example, needs=needs,
        options=Options, answer=answer, render=render,
    )  # fmt: skip


def register(monkeypatch: pytest.MonkeyPatch, command: AnyCommand) -> None:
    """Let the shell know one more command."""
    monkeypatch.setitem(COMMANDS, command.noun, command)


def answered(*words: str) -> dict[str, Any]:
    """Return the document of a command line."""
    text, status = shell.run([*words, "--json"])
    assert status == 0
    found: dict[str, Any] = json.loads(text)
    return found


@pytest.fixture
def target(tmp_path: Path) -> Iterator[Running]:
    """A small program at rest."""
    with running(c_program("holes", 1, 5, 100_000, 0, 0, tmp_path / "table"), tmp_path) as started:
        yield started


def name_of(heap: Heap) -> str:
    """Return the kind of a heap's target: a process or a core."""
    return str(heap.target.kind)


def test_two_targets(target: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that two targets are open at once, in their order, and that the document describes both."""
    register(monkeypatch, made_up(TWO_TARGETS, lambda pair: [name_of(heap) for heap in pair]))
    core = target.as_form(GCORE)
    found = answered("made-up", core, "--least=3", str(target.pid))
    assert found["what"] == ["core", "process"] and found["least"] == 3
    assert [about["kind"] for about in found["targets"]] == ["core", "process"]
    for words in ([], [core], [core, core, core]):
        with pytest.raises(UsageError, match="gdbheap made-up: "):
            shell.run(["made-up", *words])
    with pytest.raises(GdbheapError):
        shell.run(["made-up", core, "/nowhere"])


def test_files_and_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that commands about files, or without a subject, open no target and have no options about one."""
    register(monkeypatch, made_up(FILES, list))
    found = answered("made-up", "one", "two")
    assert found["what"] == ["one", "two"] and found["target"] is None
    register(monkeypatch, made_up(NOTHING, lambda nothing: [str(nothing)]))
    assert answered("made-up")["what"] == ["None"]
    for words in (["more"], ["--clone"], ["--lest=3"]):
        with pytest.raises(UsageError, match=words[0].partition("=")[0]):
            shell.run(["made-up", *words])


@dataclass
class OfSeveral(Several):
    """The options of a made-up command about several processes."""

    least: int = valued("--least", "N", "the least", 7, int)


def several(monkeypatch: pytest.MonkeyPatch, needs: Needs[Any]) -> None:
    """Let the shell know a command that answers with its processes and the command to start."""
    command = made_up(needs, lambda programs: [*map(str, programs.now()), *programs.command])
    register(monkeypatch, replace(command, options=OfSeveral))


def test_several_processes(target: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check ids, a name and a parent. Missing processes are left to the command."""
    several(monkeypatch, PROCESSES)
    assert answered("made-up", str(target.pid), str(target.pid))["what"] == [str(target.pid)]
    # Another user may run such a program too.
    assert str(target.pid) in answered("made-up", "--name=^holes$")["what"]
    assert str(target.pid) in answered("made-up", str(os.getpid()), "--children")["what"]
    assert answered("made-up")["what"] == []
    for words in (["core.1"], ["--name=("], ["--cgroup=/"], ["--least"]):
        with pytest.raises(UsageError, match=r"gdbheap made-up: |--cgroup=/ means every process"):
            shell.run(["made-up", *words])


def test_command_that_is_started(target: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that words after ``--`` belong to the started command, even if they look like gdbheap's options.

    The started command may replace other processes.
    """
    several(monkeypatch, PROGRAMS)
    text, status = shell.run(["made-up", "--json", "--least=3", "--", "prog", "--least=4", "--help", "--"])
    found = json.loads(text)
    assert status == 0 and found["what"] == ["prog", "--least=4", "--help", "--"] and found["least"] == 3
    assert answered("made-up", str(target.pid))["what"] == [str(target.pid)]
    for words in (["--"], [str(target.pid), "--", "prog"], ["--name=a", "--", "prog"], ["--cgroup=/a", "--", "prog"]):
        with pytest.raises(UsageError, match="gdbheap made-up: "):
            shell.run(["made-up", *words])


def test_live_process(target: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that a core is refused before it is opened."""
    register(monkeypatch, made_up(PROCESS, lambda heap: [name_of(heap)]))
    assert answered("made-up", str(target.pid))["what"] == ["process"]
    with pytest.raises(UsageError, match="core.1 is not a process"):
        shell.run(["made-up", "core.1"])


@pytest.mark.parametrize(
    ("needs", "usage", "example"),
    [
        (TWO_TARGETS, "gdbheap made-up TARGET TARGET [options]", "gdbheap made-up 1234 5678 --least=3"),
        (FILES, "gdbheap made-up FILE… [options]", "gdbheap made-up FILE --least=3"),
        (NOTHING, "gdbheap made-up [options]", "gdbheap made-up --least=3"),
        (PROCESS, "gdbheap made-up TARGET [options]", "gdbheap made-up 1234 --least=3"),
        (PROCESSES, "gdbheap made-up [TARGET…] [options]", "gdbheap made-up 1234 --least=3"),
        (PROGRAMS, "gdbheap made-up [options]", "gdbheap made-up 1234 --least=3"),
    ],
)
def test_help_says_what_is_needed(needs: Needs[Any], usage: str, example: str) -> None:
    """Check that the usage line and the example have the words that follow the noun."""
    command = made_up(needs, list)
    text = help_text(command, command.shell_name, needs, subjects.extra_options(command))
    assert re.search(f"Usage: {re.escape(usage)}[ \n]", text) and f"\nExample: {example}\n" in text
    assert "\n  --least=N  " in text
    # A process that is asked itself has neither a copy nor a core.
    is_either = bool(needs.targets) and needs is not PROCESS
    assert all((option in text) == is_either for option in ("--clone", "--exe", "--sysroot", "--coredump"))
    assert (" TARGET…|-- COMMAND\n\n" in text) == (needs is PROGRAMS)


class Parsed(Exception):
    """Raised with a line that the shell would answer now."""


def as_parsed(example: str) -> CommandLine:
    """Return the line as the shell's own parser and dispatch read it; no target is opened."""
    shown, *words = shlex.split(example)
    assert shown == "gdbheap"
    with pytest.raises(Parsed) as found:
        shell.run(words)
    line = found.value.args[0]
    assert isinstance(line, CommandLine)
    return line


def in_shell(command: AnyCommand) -> list[str]:
    """Return the examples of a command for a shell: that of its help, and that of docs/commands.md."""
    texts = [help_text(command, command.shell_name, command.needs, subjects.extra_options(command))]
    texts += [help_of_its_own(command)] if command.needs.shell_only else []
    return [text.rpartition("\nExample: ")[2].partition("\n")[0] for text in texts]


@pytest.mark.parametrize("noun", COMMANDS)
def test_examples_are_parsed(noun: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that each example parses as its own command, with a target and required options if it needs them."""

    def met(line: CommandLine) -> None:
        raise Parsed(line)

    monkeypatch.setattr(subjects, "ANSWERS", dict.fromkeys(subjects.ANSWERS, met))
    monkeypatch.setattr("gdbheap.tracing.log.is_call_log", lambda path: path == "calls.log")
    command = COMMANDS[noun]
    for example in in_shell(command):
        line = as_parsed(example)
        assert line.command is command, example
        needed = (
            max(command.needs.targets, bool(command.needs.words)) if not command.needs.words.startswith("--") else 0
        )
        needed += command.argument is not None and command.argument.metavar.isalpha()
        named = len(line.words)
        assert named >= needed + (command.needs is LOOKS) and not any("-" == word[0] for word in line.words), example
        assert line.started or command.needs is not STARTED, example
        assert all(getattr(line.options, option.key) for option in command.all_options if option.needed), example
    if not command.needs.shell_only:
        words = shlex.split(help_text(command).rpartition("\nExample: ")[2].partition("\n")[0])
        _options, _extra, left = parse(command, words[len(command.name.split()) :])
        assert words[: len(command.name.split())] == command.name.split()
        assert bool(left) == bool(command.argument and command.argument.metavar.isalpha() or command.needs is LOOKS)


@pytest.mark.parametrize(
    "noun", [noun for noun in COMMANDS if "-o" in {one.name for one in COMMANDS[noun].own_options if one.needed}]
)
def test_usage_has_what_cannot_be_left_out(noun: str, target: Running) -> None:
    """Check that a command that requires -o does not show it as optional."""
    command = COMMANDS[noun]
    words = ["--", "true"] if command.needs is STARTED else [str(target.pid)]
    with pytest.raises(UsageError, match="-o "):
        shell.run([command.noun, *words])
    usage = help_of_its_own(command).split("\n\n")[1]
    assert usage.startswith("Usage: ") and " -o " in usage and "[-o" not in usage
