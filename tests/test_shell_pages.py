"""The manual page and the completions: made from the declarations, and taken by what reads them."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.programs import PATIENCE
from support.scripts import script

from gdbheap.commands.surface.registry import COMMANDS

FOLDER = Path(__file__).resolve().parent.parent / "packaging"
PAGES = script("shell_pages")
NAMES = sorted(PAGES.texts())


def run(*command: str) -> subprocess.CompletedProcess[str]:
    """Run a program that may be missing here."""
    if shutil.which(command[0]) is None:
        pytest.skip(f"no {command[0]}")
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)


@pytest.mark.parametrize("name", NAMES)
def test_it_is_what_is_generated(name: str) -> None:
    """It was written after the last change of a declaration."""
    assert (FOLDER / name).read_text(encoding="utf-8") == PAGES.texts()[name], "run scripts/shell_pages.py --write"


def test_manual() -> None:
    """groff warns of nothing, and each command and its own options have their place."""
    done = run("groff", "-man", "-ww", "-Tutf8", str(FOLDER / "man" / "gdbheap.1"))
    assert (done.returncode, done.stderr) == (0, "")
    source = (FOLDER / "man" / "gdbheap.1").read_text()
    for commands in PAGES.words().values():
        for command in commands:
            assert f".SS {PAGES.escaped(command.shell_name)}" in source
            assert all(f".B {PAGES.escaped(option.spelling)}\n" in source for option in command.own_options)


def test_bash() -> None:
    """Nouns and the options of each, as they are typed."""
    lines = [f"source {FOLDER / 'completion' / 'gdbheap.bash'}", "compopt() { :; }"]
    lines += ['complete_() { COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _gdbheap; echo ${COMPREPLY[*]}; }']
    lines += ["complete_ gdbheap ''", *(f"complete_ gdbheap '{word}' 1234 --" for word in PAGES.words())]
    done = run("bash", "-c", "\n".join(lines))
    nouns, *found = done.stdout.splitlines()
    assert set(PAGES.words()) <= set(nouns.split()), done.stderr
    for said, commands in zip(found, PAGES.words().values()):
        assert set(said.split()) == {PAGES.typed(option) for option in PAGES.options(commands) if "--" in option.name}


@pytest.mark.parametrize(
    ("line", "known"),
    [
        (["export", "1234", "--format", "="], {"parquet", "csv", "sqlite", "heapsnapshot"}),
        (["export", "1234", "--format", "=", "s"], {"sqlite"}),
        (["processes", "--sort", "="], {"rss", "pss", "uss", "swap", "in-use", "free", "program"}),
        (["1234", "--sort", "="], {"resident", "virtual", "swapped", "name"}),
        (["chunks", "1234", "--state", "=", "used,f"], {"used,free", "used,fast", "used,fencepost"}),
        (["export", "1234", "-o", "x", "--host", "="], set()),
    ],
)
def test_bash_values(line: list[str], known: set[str]) -> None:
    """Behind "=", which bash has as a word of its own, are the words that the option takes."""
    lines = [f"source {FOLDER / 'completion' / 'gdbheap.bash'}", "compopt() { :; }", 'COMP_WORDS=("$@")']
    lines += ["COMP_CWORD=$(($# - 1))", "_gdbheap", "echo ${COMPREPLY[*]}"]
    done = run("bash", "-c", "\n".join(lines), "bash", "gdbheap", *line)
    assert (set(done.stdout.split()), done.stderr) == (known, "")


def test_fish() -> None:
    """The same."""
    lines = [f"source {FOLDER / 'completion' / 'gdbheap.fish'}"]
    lines += [f"echo noun {word}; complete -C 'gdbheap {word} 1234 --'" for word in PAGES.words()]
    found: dict[str, set[str]] = {}
    for line in run("fish", "--no-config", "-c", "\n".join(lines)).stdout.splitlines():
        first = line.split("\t")[0]
        if first.startswith("noun "):
            options = found[first[5:]] = set()
        else:
            options.add(first.rstrip("="))
    for word, commands in PAGES.words().items():
        assert {option.name for option in PAGES.options(commands) if "--" in option.name} <= found[word], word


def valued_lines() -> Iterator[tuple[str, list[str]]]:
    """Yield each beginning of a line that ends in an option and "=", and what the option takes, one of a few words."""
    for word, commands in PAGES.words().items():
        for name, known in PAGES.values(commands).items():
            yield f"gdbheap {word} 1234 {name}=", known


def test_fish_values() -> None:
    """Each option of each command that takes one of a few words offers those words and nothing else; without a noun,
    too, and after a comma where it takes several."""
    lines = dict(valued_lines())
    lines["gdbheap 1234 --sort="] = list(COMMANDS[""].sorts)
    lines["gdbheap chunks 1234 --state=used,f"] = ["used,free", "used,fast", "used,fencepost"]
    assert len(lines) > 30 and any("--format=" in line for line in lines)
    asked = [f"source {FOLDER / 'completion' / 'gdbheap.fish'}"]
    asked += [f"echo == next; complete -C '{line}'" for line in lines]
    first, *found = run("fish", "--no-config", "-c", "\n".join(asked)).stdout.split("== next\n")
    assert first == "" and len(found) == len(lines)
    for (line, known), said in zip(lines.items(), found):
        words = [each.split("\t")[0].partition("=")[2] for each in said.splitlines()]
        assert sorted(words) == sorted(known), line


ZSH_VALUES = {
    "export 1234 --format=sq": "--format=sqlite",
    "heap 1234 --sort=vi": "--sort=virtual",
    "1234 --sort=vi": "--sort=virtual",
    "chunks 1234 --state=used,fen": "--state=used,fencepost",
    "pyobjects 1234 --by=le": "--by=length",
}


def test_zsh_values(tmp_path: Path) -> None:
    """What is begun is finished where only one word can be meant, as if Tab were pressed in a terminal."""
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
    words = ["zsh", "-fc", terminal, "zsh", str(FOLDER / "completion"), *ZSH_VALUES]
    if shutil.which("zsh") is None:
        pytest.skip("no zsh")
    done = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE, cwd=tmp_path)
    if done.returncode == 9:
        pytest.skip("zsh has no pseudo-terminal here")
    told = (tmp_path / "told").read_text().splitlines()
    assert told == [f"told {line} told" for line in ZSH_VALUES.values()]


def test_zsh() -> None:
    """It is read without complaint, and is the completion of gdbheap."""
    lines = [
        "autoload -Uz compinit",
        "compinit -u -D",
        f"fpath=({FOLDER / 'completion'} $fpath)",
        "autoload -Uz _gdbheap",
    ]
    done = run("zsh", "-fc", "\n".join([*lines, "compdef _gdbheap gdbheap", "echo $_comps[gdbheap]"]))
    assert (done.stdout.strip(), done.stderr) == ("_gdbheap", "")
    assert run("zsh", "-n", str(FOLDER / "completion" / "_gdbheap")).returncode == 0
