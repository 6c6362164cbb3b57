"""Completions of shells, and the manual page: made from the declarations, and checked by their own readers."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.programs import GDBHEAP, PATIENCE, gdbheap
from support.scripts import ROOT, script

from gdbheap.commands.shell.completing import complete
from gdbheap.commands.shell.line import extra_options
from gdbheap.commands.surface.declaration import AnyCommand
from gdbheap.commands.surface.registry import COMMANDS

FOLDER = ROOT / "packaging" / "completion"
MANUAL = script("manual")
WITH_GDBHEAP = {**os.environ, "PATH": f"{GDBHEAP.parent}:{os.environ['PATH']}"}


def run(*command: str) -> subprocess.CompletedProcess[str]:
    """Run a program that may be missing here."""
    if shutil.which(command[0]) is None:
        pytest.skip(f"no {command[0]}")
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, env=WITH_GDBHEAP)


def words() -> dict[str, list[AnyCommand]]:
    """Return the commands by the word that is typed."""
    found: dict[str, list[AnyCommand]] = {"heap": [COMMANDS[""]]}
    for noun, command in COMMANDS.items():
        if noun:
            found[noun] = [command]
    return found


def options(commands: list[AnyCommand]) -> set[str]:
    """Return the options that may follow a word, as they are typed."""
    every = [option for command in commands for option in (*command.all_options, *extra_options(command))]
    return {"--help", *(f"{option.name}=" if option.takes_next else option.name for option in every)}


def values(commands: list[AnyCommand]) -> dict[str, set[str]]:
    """Return the accepted words of each option that accepts only a few."""
    found: dict[str, set[str]] = {}
    for option in (option for command in commands for option in command.all_options if option.values):
        found.setdefault(option.name, set()).update(option.values)
    return found


def offered(*line: str) -> set[str]:
    """Return the completions of the last word of a line."""
    return {found.split(" ")[0] for found in complete(line).splitlines()}


def test_gdbs_help() -> None:
    """Check that gdb's help was generated after the last change of a declaration."""
    text = (ROOT / "gdbheap" / "loader" / "help.txt").read_text(encoding="utf-8")
    assert text == script("gdb_help").help_file(), "run scripts/gdb_help.py --write"


def test_manual(tmp_path: Path) -> None:
    """Check that groff prints no warnings, and that each command and its own options are in the page."""
    page = tmp_path / "gdbheap.1"
    source = "".join(MANUAL.manual())
    page.write_text(source, encoding="utf-8")
    for command in COMMANDS.values():
        assert f".SS {MANUAL.escaped(command.shell_name)}" in source
        assert all(f".B {MANUAL.escaped(option.spelling)}\n" in source for option in command.own_options)
    done = run("groff", "-man", "-ww", "-Tutf8", str(page))
    assert (done.returncode, done.stderr) == (0, "")


def test_the_first_word() -> None:
    """Check that the first word may be a noun, a process id, or an option that stands alone."""
    assert offered("") >= {*words(), "install", "schema", "mcp", str(os.getpid())}
    assert offered("own") == {"owners"}
    assert offered(str(os.getpid())) >= {str(os.getpid())}
    assert offered("-") >= {*options([COMMANDS[""]]), "--version", "--gdb-script"}
    assert {word for word in offered() if not word.isdecimal()} == {*words(), "install", "schema", "mcp"}


def test_options() -> None:
    """Check that each command offers its options, and the few words that each accepts, also after a comma."""
    for word, commands in words().items():
        assert offered(word, "1234", "-") == options(commands), word
        for name, known in values(commands).items():
            assert offered(word, "1234", f"{name}=") == {f"{name}={value}" for value in known}, (word, name)
    assert offered("1234", "--sort=v") == {"--sort=virtual"}
    assert offered("chunks", "1234", "--state=used,f") == {
        "--state=used,free",
        "--state=used,fast",
        "--state=used,fencepost",
    }


def test_odd_lines() -> None:
    """Check that odd lines get an answer, which may be empty."""
    for line in (["nothing", "--x"], ["owners", "--json="], ["--", ""], ["\x1b", "é="], ["export", "/tm"]):
        done = gdbheap("--complete", *line)
        assert (done.returncode, done.stderr) == (0, ""), line


@pytest.mark.parametrize(
    ("line", "known"),
    [
        ("gdbheap own", {"owners"}),
        ("gdbheap export 1234 --format=", {"parquet", "csv", "sqlite", "heapsnapshot"}),
        ("gdbheap export 1234 --format=s", {"sqlite"}),
        ("gdbheap export 1234 --form", {"--format="}),
        ("gdbheap 1234 --sort=", {"resident", "virtual", "swapped", "name"}),
        ("gdbheap chunks 1234 --state=used,f", {"used,free", "used,fast", "used,fencepost"}),
        ("gdbheap export 1234 -o x --host=", set()),
    ],
)
def test_bash(line: str, known: set[str]) -> None:
    """Check the completions after "=", which bash treats as a separate word."""
    lines = [f"source {FOLDER / 'gdbheap.bash'}", "compopt() { :; }"]
    lines += ["COMP_LINE=$1 COMP_POINT=${#1}", "_gdbheap", "echo ${COMPREPLY[*]}"]
    done = run("bash", "-c", "\n".join(lines), "bash", line)
    assert (set(done.stdout.split()), done.stderr) == (known, "")


def valued_lines() -> Iterator[tuple[str, set[str]]]:
    """Yield beginnings of lines that end in an option and "=", with the few words that this option accepts."""
    for word, commands in words().items():
        for name, known in values(commands).items():
            yield f"gdbheap {word} 1234 {name}=", known


def test_fish() -> None:
    """Check that fish offers the options of a command, and only the accepted words after an option, also in lines
    without a noun and after a comma if the option accepts several words.
    """
    lines = dict(list(valued_lines())[::5])  # Each line takes a tenth of a second.
    lines["gdbheap 1234 --sort="] = set(COMMANDS[""].sorts)
    lines["gdbheap chunks 1234 --state=used,f"] = {"used,free", "used,fast", "used,fencepost"}
    lines[f"gdbheap at 1234 --exe={ROOT}/README"] = {f"{ROOT}/README.md"}
    asked = [f"source {FOLDER / 'gdbheap.fish'}", "complete -C 'gdbheap owners 1234 -'"]
    asked += [f"echo == next; complete -C '{line}'" for line in lines]
    first, *found = run("fish", "--no-config", "-c", "\n".join(asked)).stdout.split("== next\n")
    assert options([COMMANDS["owners"]]) == {line.split("\t")[0] for line in first.splitlines()} and "\t" in first
    assert len(found) == len(lines)
    for (line, known), said in zip(lines.items(), found):
        assert {each.split("\t")[0].partition("=")[2] for each in said.splitlines()} == known, line


ZSH_VALUES = {
    "export 1234 --format=sq": "--format=sqlite",
    "heap 1234 --sort=vi": "--sort=virtual",
    "1234 --sort=vi": "--sort=virtual",
    "chunks 1234 --state=used,fen": "--state=used,fencepost",
    "pyobjects 1234 --by=le": "--by=length",
}


def test_zsh_values(tmp_path: Path) -> None:
    """Check that a word is completed if only one is possible, as with Tab in a terminal."""
    terminal = """
        zmodload zsh/zpty || exit 9
        zpty shell zsh -f -i || exit 9
        zpty -w shell "PROMPT= RPROMPT= ZLE_LINE_ABORTED=; unsetopt zle_bracketed_paste prompt_cr prompt_sp; stty -echo"
        zpty -w shell "autoload -Uz compinit; compinit -u -D; fpath=($1 \\$fpath); autoload -Uz _gdbheap"
        zpty -w shell "compdef _gdbheap gdbheap; bindkey '^I' complete-word; zstyle ':completion:*' list-prompt ''"
        zpty -w shell "gdbheap() { print -r -- told \\$argv[-1] told >> told; }"
        shift
        for line in "$@"; do zpty -w shell "gdbheap $line"$'\\t'; done
        zpty -w shell "exit"
        while zpty -r shell line; do :; done
    """
    words = ["zsh", "-fc", terminal, "zsh", str(FOLDER), *ZSH_VALUES]
    if shutil.which("zsh") is None:
        pytest.skip("no zsh")
    done = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE, cwd=tmp_path, env=WITH_GDBHEAP)
    if done.returncode == 9:
        pytest.skip("zsh has no pseudo-terminal here")
    told = (tmp_path / "told").read_text().splitlines()
    assert told == [f"told {line} told" for line in ZSH_VALUES.values()]


def test_zsh() -> None:
    """Check that zsh reads the file without complaint as the completion of gdbheap."""
    lines = [
        "autoload -Uz compinit",
        "compinit -u -D",
        f"fpath=({FOLDER} $fpath)",
        "autoload -Uz _gdbheap",
    ]
    done = run("zsh", "-fc", "\n".join([*lines, "compdef _gdbheap gdbheap", "echo $_comps[gdbheap]"]))
    assert (done.stdout.strip(), done.stderr) == ("_gdbheap", "")
    assert run("zsh", "-n", str(FOLDER / "_gdbheap")).returncode == 0
