"""Each command's help fits a screen, in a shell and in gdb, and describes each option in one line."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from support.programs import gdbheap

from gdbheap.commands.gdb.help import help_file
from gdbheap.commands.shell import commands as shell
from gdbheap.commands.shell.help import help_of, help_of_options
from gdbheap.commands.shell.line import Extra, extra_options
from gdbheap.commands.surface.declaration import NOTHING_LISTED, AnyCommand
from gdbheap.commands.surface.help import LISTING, help_text, options_help
from gdbheap.commands.surface.options import Common, Option, options_of
from gdbheap.commands.surface.registry import COMMANDS, GROUPS

MOST_LINES, MOST_COLUMNS, MOST_WORDS, MOST_WORDS_OF_SENTENCE = 40, 80, 12, 20
DEFAULT = re.compile(r" \[default[^]]*\]$")
# The words with which no help and no sentence may begin.
NO_VERBS = {"a", "also", "an", "for", "how", "in", "of", "only", "the", "to", "what", "where", "which", "with"}
NO_BEGINNINGS = ("Of", "To", "With", "Where", "Worth", "Beside", "By", "That", "Those", "What")
EVERY = (*LISTING, *options_of(Common), *options_of(Extra))


def in_gdb() -> dict[str, str]:
    """Return gdb's helps by noun, with the longer of the two prefixes."""
    parts = (part.partition("\n") for part in help_file().replace("{prefix}", "gdbheap").split("\f")[1:])
    return {name: text.rstrip("\n") for name, _, text in parts}


def helps() -> Iterator[tuple[str, str]]:
    """Yield each help with the place where it is typed."""
    yield from ((f"gdbheap {noun}", help_of(noun)) for noun in COMMANDS)
    yield from ((f"help {name}", text) for name, text in in_gdb().items())
    yield from ((f"gdbheap {verb}", shell.run([verb, "--help"])[0]) for verb in shell.VERBS)
    yield "gdbheap help options", help_of_options()


def sentences(text: str) -> Iterator[str]:
    """Yield the sentences of a text, also those after a colon or a semicolon."""
    for part in re.split(r"\n\s*\n|\n\s*- ", text):
        yield from re.split(r"(?<=[.!?;:])\s+", " ".join(part.split()))


def test_every_help_fits_a_screen() -> None:
    """Check the length of each help, in a shell and in gdb."""
    shown = dict(helps())
    assert len(shown) == len(COMMANDS) + len(in_gdb()) + len(shell.VERBS) + 1
    too_long = {name: len(text.splitlines()) for name, text in shown.items() if len(text.splitlines()) > MOST_LINES}
    too_wide = {name: line for name, text in shown.items() for line in text.splitlines() if len(line) > MOST_COLUMNS}
    assert (too_long, too_wide) == ({}, {})


def test_every_option_is_a_verb_and_a_few_words() -> None:
    """Check that each option's help is a verb and a few words, with the default only in brackets."""
    every = {option for command in COMMANDS.values() for option in command.own_options} | set(EVERY)
    every |= {option for command in COMMANDS.values() for option in command.listing_options}
    for option in every:
        words = DEFAULT.sub("", option.help).split()
        assert 1 < len(words) <= MOST_WORDS and words[0].isalpha() and words[0].islower(), option
        assert words[0] not in NO_VERBS and not option.help.endswith(".") and "the default is" not in option.help, (
            option
        )


@pytest.mark.parametrize("noun", COMMANDS)
def test_a_help_has_what_the_command_has(noun: str) -> None:
    """Check that a help has its own options with a line each, common options by name only, and no option without
    effect."""
    command = COMMANDS[noun]
    extra = extra_options(command)
    for text, more in ((help_of(noun), extra), (help_text(command), extra if command.needs.shell_only else ())):
        common = text.partition("\nCommon options (")[2].partition("\n\n")[0]
        names = re.findall(r"(?<= )--[a-z-]+", common)
        assert names[: len(options_of(Common))] == [option.name for option in options_of(Common)]
        assert set(names) <= {option.name for option in (*options_of(Common), *more)}
        assert NOTHING_LISTED not in text
        for option in command.own_options:
            assert re.search(rf"^  {re.escape(option.spelling)}  +{option.help[:10]}", text, re.MULTILINE), option.name
        assert ("--top=N" in text, "--sort=KEY" in text) == (bool(command.listed), len(command.sorts) > 1)
        assert text.count("\nUsage: ") == text.count("\nExample: ") == text.count("\nMore: docs/commands.md#") == 1
    assert {option.name for option in extra} <= set(re.findall(r"(?<= )--[a-z-]+", help_of(noun)))


def test_headings_have_every_option() -> None:
    """Check that every option is under a heading; otherwise it would stand below the last one."""
    for command in COMMANDS.values():
        names = [name for names in command.headings.values() for name in names]
        known = [option.name for option in (*command.own_options, *command.listing_options)]
        assert not names or sorted(names) == sorted(known), command.name


def test_help_options_explains_each() -> None:
    """Check that each option is explained once, in a shell and in gdb, by the command that the other helps name."""

    def lines(option: Option, text: str) -> int:
        return len(re.findall(rf"^  {re.escape(option.spelling)}  +\w", text, re.MULTILINE))

    assert {lines(option, help_of_options()) for option in EVERY} == {1}
    assert all(lines(option, in_gdb()["options"]) == (option not in options_of(Extra)) for option in EVERY)
    assert all(" ".join(option.details.split()) in " ".join(help_of_options().split()) for option in EVERY)
    assert in_gdb()["options"] == options_help("gdbheap")
    done = gdbheap("help", "options")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{help_of_options()}\n", "")
    assert "(gdbheap help options)" in help_of("holes") and "(help heap options)" in help_text(COMMANDS["holes"])


def test_gdbs_overview_is_grouped() -> None:
    """Check that ``help heap`` has the groups of ``gdbheap --help``, with each command that gdb has."""
    text = in_gdb()[""]
    for title, nouns in GROUPS.items():
        wanted = [noun for noun in nouns if noun and not COMMANDS[noun].needs.shell_only]
        found = re.search(rf"^  {title} +(.*\n(?: {{20,}}.*\n)*)", text, re.MULTILINE)
        assert (found[1].split() if found else []) == wanted, title


@pytest.mark.parametrize("command", COMMANDS.values(), ids=lambda command: command.name)
def test_sentences_are_short(command: AnyCommand) -> None:
    """Check that a help begins with its subject, and that a sentence, or its part before a colon, has at most twenty
    words."""
    assert len(command.summary) <= MOST_COLUMNS - len("  check-advice ") and not command.summary.endswith(".")
    for sentence in (found for text in (command.text, command.details) for found in sentences(text)):
        assert len(sentence.split()) <= MOST_WORDS_OF_SENTENCE, sentence
        assert sentence.partition(" ")[0] not in NO_BEGINNINGS, sentence
