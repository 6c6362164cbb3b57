"""Run a command line of the shell's ``gdbheap``: find the command, answer, and render."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from gdbheap.commands.shell.line import extra_options
from gdbheap.commands.shell.streams import complain
from gdbheap.commands.shell.subjects import answer, meant, own_words
from gdbheap.commands.surface.declaration import GDB, OPTIONS, SHELL, AnyCommand
from gdbheap.commands.surface.nearest import did_you_mean
from gdbheap.commands.surface.options import Writing
from gdbheap.commands.surface.parser import wants_help
from gdbheap.commands.surface.registry import COMMANDS, HEAP_NOUN
from gdbheap.commands.surface.session import present, status_of
from gdbheap.environment import given
from gdbheap.errors import UsageError
from gdbheap.files import find_file
from gdbheap.report.text.style import style_for
from gdbheap.text import IN_SHELL

__all__ = ["called", "run"]

HELP = "help"


def run(words: Sequence[str]) -> tuple[str, int]:
    """Run a command line. Return the text for standard output and the exit status. Raises GdbheapError."""
    if not words:
        raise UsageError("which process or core? gdbheap [NOUN] PID|CORE (see 'gdbheap --help')")
    if words == [HELP, OPTIONS]:
        # Imported here, because no other command needs it.
        from gdbheap.commands.shell.help import help_of_options

        return help_of_options(), 0
    if words[0] == HELP:
        words = [*words[1:], "--help"]
    noun, rest = _noun(words)
    if noun in VERBS:
        return VERBS[noun](rest), 0
    if wants_help(own_words(words)):
        # Imported here, because no other command needs it.
        from gdbheap.commands.shell.help import help_of, overview

        return (help_of(_known(noun)) if noun else overview()), 0
    return _answer(meant(_known(noun), rest), rest)


def called(words: Sequence[str]) -> str:
    """Return the name that a line's command has in a JSON document, even if the rest of the line is wrong."""
    noun, rest = _noun([*words[1:], "--help"] if words[:1] == [HELP] else own_words(words))
    if noun in VERBS:
        return f"{SHELL} {noun}"
    return meant(_known(noun), rest).name


def _known(noun: str) -> str:
    """Return the key of a command in COMMANDS. "heap" means the command without a name, which gdb calls "heap"."""
    return HEAP_NOUN if noun == GDB else noun


def _answer(command: AnyCommand, words: list[str]) -> tuple[str, int]:
    answered = answer(command, words)
    info = answered.info
    style = style_for(sys.stdout, answered.options.exact, info.rss, info.private, command=IN_SHELL)
    text = present(answered, style)
    if isinstance(answered.options, Writing) and answered.options.takes_output:
        complain(text)
        text = ""
    return text, status_of(answered)


def _noun(words: Sequence[str]) -> tuple[str, list[str]]:
    """Return the command's name and the other words; "" as the name if there is none.

    The name is the first word that is neither an option nor an option's value. The name may also follow the target.
    """
    skip = False
    for place, word in enumerate(words):
        if skip or word.startswith("--"):
            skip = not skip and _takes_value(word)
            continue
        if word in COMMANDS or word == GDB or word in VERBS:
            rest = [*words[:place], *words[place + 1 :]]
            # As in gdb, "heap" may come before the command's name: "heap holes".
            after = _noun(rest) if word == GDB else ("", rest)
            return after if after[0] in COMMANDS and after[0] else (word, rest)
        # The command's name may follow the target, unless a file has this name.
        later = words[place + 1 : place + 2]
        if later and later[0] in COMMANDS and find_file(later[0]) is None:
            return later[0], [*words[: place + 1], *words[place + 2 :]]
        break
    return "", list(words)


def _takes_value(word: str) -> bool:
    """Return whether a word is an option of any command and takes the next word as its value."""
    commands = COMMANDS.values()
    options = (option for command in commands for option in (*command.all_options, *extra_options(command)))
    return any(option.takes_next and option.name == word for option in options)


def _install(words: list[str]) -> str:
    from gdbheap.commands.shell.installation import install, remove

    if wants_help(words):
        return (
            "Add the commands of gdbheap to gdb.\n\n"
            "Usage: gdbheap install [--remove]\n\n"
            "  --remove  remove the line again\n\n"
            "install writes one line into your gdbinit file. gdb then knows the commands from\n"
            "its start, and loads them when you use them. A process stays stopped until you\n"
            "leave gdb. If you start gdb with -batch, gdb ends after the answer. The file is\n"
            "$XDG_CONFIG_HOME/gdb/gdbinit if this variable is set, ~/.config/gdb/gdbinit or\n"
            "~/.gdbinit. If root installs into another user's home, install acts with that\n"
            "user's rights.\n\n"
            "Example: gdb -p 1234 -ex heap"
        )
    if words not in ([], ["--remove"]):
        raise UsageError(f"gdbheap install: unrecognized arguments: {' '.join(words)} (only --remove is known)")
    return remove(given()) if words else install(given())


def _schema(words: list[str]) -> str:
    if wants_help(words):
        return (
            "Print the JSON Schema of a command's --json, or of all commands.\n\n"
            "Usage: gdbheap schema [NOUN]\n\n"
            "The schema says the type, the unit and the meaning of each key, and when the\n"
            "key is null.\n\n"
            "Example: gdbheap schema holes\n"
            "More: docs/json.md"
        )
    # ``schema`` prints JSON even without --json. A word may be the name of a command in a document, such as "heap
    # holes".
    words = [part for word in words if word != "--json" for part in word.split()]
    if len(words) == 2 and words[0] == "heap":
        del words[0]
    if len(words) > 1:
        raise UsageError(f"gdbheap schema: name one command, not {len(words)}")
    nouns = [_known(word) for word in words] or list(COMMANDS)
    if nouns[0] not in COMMANDS:
        raise UsageError(f"gdbheap schema: there is no command {nouns[0]!r}{did_you_mean(nouns[0], COMMANDS)}")
    # Imported here, because no other command needs them.
    from json import dumps

    from gdbheap.report.formats.schema import schema_of

    found = [COMMANDS[noun] for noun in nouns]
    return dumps(schema_of({command.name: command.answer for command in found}), indent=1)


def _mcp(words: list[str]) -> str:
    if wants_help(words):
        return (
            "Answer questions of coding agents through the Model Context Protocol.\n\n"
            "Usage: gdbheap mcp [--allow-calls] [--with-contents] | --skill\n\n"
            "  --allow-calls    also offer commands that call into a process or change\n"
            "                   its code: stats, trim --yes, growth, catch\n"
            "  --with-contents  show the contents of strings, bytes and keys\n"
            "  --skill          print SKILL.md, which tells an agent that has a shell how to\n"
            "                   find the cause of a symptom, and end\n\n"
            "gdbheap mcp reads requests from standard input until the input ends. It writes\n"
            "answers of at most 16 kB to standard output. The tools are first_page, ask,\n"
            "compare and help. The package mcp is needed: pip install 'gdbheap[mcp]'.\n\n"
            'Example: {"command": "gdbheap", "args": ["mcp"]} in a client\'s mcpServers\n'
            "More: docs/agents.md"
        )
    # Imported here, because no other command needs it.
    from gdbheap.commands.shell.mcp.server import serve, skill

    if words == ["--skill"]:
        return skill().rstrip("\n")
    serve(words)
    return ""


# Commands that the shell runs itself. They answer no question about memory.
VERBS = {"install": _install, "schema": _schema, "mcp": _mcp}
