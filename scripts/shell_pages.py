"""Write the manual page, the completions of bash, zsh and fish, and the help that gdb has before it loads gdbheap.

They come from the declarations that the parsers use. With --write they are put in place, by their paths below
packaging/; without it their paths and texts are printed. Run it with the Python that gdbheap is installed in.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Container, Iterator
from pathlib import Path

from gdbheap import __version__
from gdbheap.commands.gdb.help import help_file
from gdbheap.commands.shell.line import Extra
from gdbheap.commands.surface.declaration import GDB, AnyCommand
from gdbheap.commands.surface.options import Common, Option, options_of
from gdbheap.commands.surface.registry import ABOUT_LOGS, COMMANDS, HEAP_NOUN

FOLDER = Path(__file__).resolve().parent.parent / "packaging"
DESCRIPTION = """gdbheap says from outside, and without running anything in it, where the memory of a process went, or
of one that is gone and left a core: what its allocators hold and why they do not give it back, which types have it,
and who holds those. TARGET is a process id or the path of a core. Each command has a help of its own: gdbheap NOUN
--help. The same words are commands of gdb, with heap in place of gdbheap and without TARGET, after gdbheap install."""
WIDTH = 90
# Metavars of which a shell knows what they may be.
FILE, FOLDERS, PID = "FILE", ("FOLDER", "DIR"), "PID"
STATUSES = (
    ("0", "It was answered."),
    ("1", "Something is damaged or missing, and the answer is as far as it goes."),
    ("2", "The command line is wrong."),
    ("3", "The system does not permit it."),
    ("4", "There is no such process, or the file is no core."),
    ("5", "What was asked is not supported of this target."),
)
ESCAPED = str.maketrans({"\\": "\\e", "-": "\\-", "'": "\\(aq", "`": "\\(ga", "^": "\\(ha", "~": "\\(ti"})


def texts() -> dict[str, str]:
    """Return the text of each file by its path below packaging/."""
    return {
        "man/gdbheap.1": "".join(manual()),
        "completion/gdbheap.bash": "".join(bash()),
        "completion/_gdbheap": "".join(zsh()),
        "completion/gdbheap.fish": "".join(fish()),
        "../gdbheap/loader/help.txt": help_file(),
    }


def words() -> dict[str, list[AnyCommand]]:
    """Return the commands by the word that is typed; the one without a noun is also called as gdb has it."""
    found: dict[str, list[AnyCommand]] = {GDB: [COMMANDS[HEAP_NOUN]]}
    for noun, command in COMMANDS.items():
        if noun:
            word = next((typed for typed, meant in ABOUT_LOGS.items() if meant == noun), noun)
            found.setdefault(word, []).append(command)
    return found


def options(commands: list[AnyCommand]) -> list[Option]:
    """Return the options that may follow a word, each once."""
    every = [option for command in commands for option in (*command.all_options, *options_of(Extra))]
    return list({option.name: option for option in every}.values())


# The manual.


def escaped(text: str) -> str:
    """Return a text as roff has it, in one line that begins with no request."""
    line = " ".join(text.split()).translate(ESCAPED)
    line = "".join(char if char.isascii() else f"\\[u{ord(char):04X}]" for char in line)
    return f"\\&{line}" if line.startswith((".", "\\(aq")) else line


def paragraph(text: str) -> Iterator[str]:
    """Yield a text with its paragraphs."""
    for part in text.strip().split("\n\n"):
        yield f".PP\n{escaped(part)}\n"


def entry(title: str, text: str) -> str:
    """Return a tagged paragraph."""
    return f".TP\n.B {escaped(title)}\n{escaped(text)}\n"


def manual() -> Iterator[str]:
    """Yield the page."""
    yield f'.TH GDBHEAP 1 "" "gdbheap {__version__}" "User Commands"\n.SH NAME\n'
    yield "gdbheap \\- where the memory of a process went, down to the last page\n.SH SYNOPSIS\n"
    yield ".B gdbheap\n.RI [ NOUN ]\n.RI [ TARGET ]\n.RI [ OPTION ...]\n.SH DESCRIPTION\n"
    yield from paragraph(DESCRIPTION)
    yield ".SH COMMANDS\n"
    for command in COMMANDS.values():
        needs = command.needs
        after = command.argument.metavar if command.argument else ""
        line = " ".join(part for part in (command.shell_name, needs.words, after) if part)
        yield f".SS {escaped(line)}\n{escaped(command.question)}\n"
        yield from paragraph(command.text)
        for option in (*command.own_options, *command.listing_options):
            yield entry(option.spelling, f"{option.help}.")
    yield ".SH OPTIONS OF EVERY COMMAND\n"
    listing = {option.name for command in COMMANDS.values() for option in command.listing_options}
    for option in options([COMMANDS[HEAP_NOUN]]):
        if option.name not in listing:
            yield entry(option.spelling, f"{option.help}.")
    yield ".SH EXIT STATUS\n"
    yield from (entry(status, meaning) for status, meaning in STATUSES)
    yield ".SH SEE ALSO\n.BR gdb (1),\n.BR ps (1),\n.BR proc (5),\n.BR malloc_stats (3)\n"


# Completions.


def brief(text: str) -> str:
    """Return the beginning of a help text, as far as a list has room for it."""
    first = re.split(r"; |\. | \(|: ", text)[0]
    return first if len(first) <= WIDTH else first[: first.rindex(" ", 0, WIDTH)] + "…"


def told(option: Option) -> str:
    """Return what a list says of an option; where its help begins with its words, they are offered beside it."""
    text = brief(option.help)
    return option.metavar.lower() if text in option.values else text


def typed(option: Option) -> str:
    """Return an option as it is completed."""
    return f"{option.name}=" if option.takes_next else option.name


def values(commands: list[AnyCommand]) -> dict[str, list[str]]:
    """Return what options take of which that is one of a few words, by their names. Commands that share a word may each
    have words of their own."""
    found: dict[str, list[str]] = {}
    for command in commands:
        for option in options([command]):
            known = found.setdefault(option.name, [])
            known += [value for value in option.values if value not in known]
    return {name: known for name, known in found.items() if known}


def several(commands: list[AnyCommand]) -> set[str]:
    """Return the names of the options that take more than one of such words, with commas between them."""
    return {option.name for option in options(commands) if option.takes_several}


def bash() -> Iterator[str]:
    """Yield the completion of bash: nouns, then options and their values, with processes and files for what follows."""
    yield "# Completion of gdbheap for bash; written by scripts/shell_pages.py.\n_gdbheap()\n{\n"
    yield '    local word="${COMP_WORDS[COMP_CWORD]}" noun="${COMP_WORDS[1]}" option="" several="" words\n'
    yield '    [[ ${COMP_WORDS[COMP_CWORD-1]} == "=" ]] && option="${COMP_WORDS[COMP_CWORD-2]}"\n'
    yield '    [[ $word == "=" ]] && word="" && option="${COMP_WORDS[COMP_CWORD-1]}"\n'
    yield f'    if [[ $COMP_CWORD == 1 ]]; then\n        words="{" ".join(words())} install --help --version"\n'
    yield '    else\n        case "$noun" in\n'
    for word, commands in words().items():
        yield f'        {word}) words="{" ".join(map(typed, options(commands)))}" ;;\n'
    yield f'        *) words="{" ".join(map(typed, options([COMMANDS[HEAP_NOUN]])))}" noun={GDB} ;;\n'
    yield "        esac\n    fi\n"
    yield '    if [[ -n $option ]]; then\n        words=""\n        case "$noun $option" in\n'
    for word, commands in words().items():
        for name, known in values(commands).items():
            more = " several=yes" if name in several(commands) else ""
            yield f'        "{word} {name}") words="{" ".join(known)}"{more} ;;\n'
    yield "        esac\n"
    yield '        [[ -n $several && $word == *,* ]] && words=$(printf "${word%,*},%s " $words)\n'
    yield '    elif [[ $word != -* ]]; then\n        words+=" $(command ps -eo pid= 2>/dev/null)"\n    fi\n'
    yield '    mapfile -t COMPREPLY < <(compgen -W "$words" -- "$word")\n'
    yield "    [[ ${#COMPREPLY[@]} == 1 && ${COMPREPLY[0]} == *= ]] && compopt -o nospace\n"
    yield "}\ncomplete -o default -F _gdbheap gdbheap\n"


def quoted(text: str) -> str:
    """Return a text in single quotes of a shell."""
    return "'" + text.replace("'", "'\\''") + "'"


def zsh() -> Iterator[str]:
    """Yield the completion of zsh."""
    yield "#compdef gdbheap\n# Completion of gdbheap for zsh; written by scripts/shell_pages.py.\n\n_gdbheap() {\n"
    yield "    local -a nouns options\n    nouns=(\n"
    for word, commands in words().items():
        yield f"        {quoted(f'{word}:{commands[0].question}')}\n"
    yield "    )\n    if (( CURRENT == 2 )); then\n        _describe 'command' nouns\n        _pids\n        _files\n"
    yield "        return\n    fi\n    case $words[2] in\n"
    for word, commands in {**words(), "*": [COMMANDS[HEAP_NOUN]]}.items():
        yield f"    {word})\n        options=(\n"
        known, lists = values(commands), several(commands)
        for option in options(commands):
            help_text = told(option).replace("[", "(").replace("]", ")").replace(":", "\\:")
            metavar = option.metavar.replace(":", "\\:")
            value = f":{metavar}:{zsh_value(option, known.get(option.name, []), lists)}" if option.metavar else ""
            yield f"            {quoted(f'{typed(option)}[{help_text}]{value}')}\n"
        yield "        ) ;;\n"
    yield "    esac\n    _arguments -s $options '*: :_gdbheap_target'\n}\n\n"
    yield '_gdbheap_target() {\n    _pids\n    _files\n}\n\n_gdbheap "$@"\n'


def zsh_value(option: Option, known: list[str], lists: set[str]) -> str:
    """Return what completes the value of an option."""
    if option.name in lists:
        return f"_values -s , {option.metavar} {' '.join(known)}"
    kinds = {FILE: "_files", **dict.fromkeys(FOLDERS, "_files -/"), PID: "_pids"}
    return f"({' '.join(known)})" if known else kinds.get(option.metavar, "")


def fish() -> Iterator[str]:
    """Yield the completion of fish."""
    yield "# Completion of gdbheap for fish; written by scripts/shell_pages.py.\n"
    yield f"function __gdbheap_no_noun\n    not __fish_seen_subcommand_from {' '.join(words())}\nend\n"
    yield "complete -c gdbheap -n __fish_use_subcommand -a '(__fish_complete_pids)'\n"
    common = {option.name: option for option in (*options_of(Common), *options_of(Extra))}
    for word, commands in words().items():
        question = fish_quoted(commands[0].question)
        yield f"complete -c gdbheap -n __fish_use_subcommand -a {word} -d {question}\n"
        yield from fish_options(f"__fish_seen_subcommand_from {word}", commands, common)
    yield from fish_options("__gdbheap_no_noun", [COMMANDS[HEAP_NOUN]], common)
    for option in common.values():
        yield fish_option("not __fish_use_subcommand", option, fish_value(option, [], set()))


def fish_options(when: str, commands: list[AnyCommand], common: Container[str]) -> Iterator[str]:
    """Yield the lines of a command's own options."""
    known, lists = values(commands), several(commands)
    for option in options(commands):
        if option.name not in common:
            yield fish_option(when, option, fish_value(option, known.get(option.name, []), lists))


def fish_value(option: Option, known: list[str], lists: set[str]) -> str:
    """Return what completes the value of an option, as words of its line."""
    if option.name in lists:
        return f" -x -a '(__fish_append , {' '.join(known)})'"
    if known or option.metavar in (*FOLDERS, PID):
        helper = "pids" if option.metavar == PID else "directories"
        return f" -x -a '{' '.join(known)}'" if known else f" -x -a '(__fish_complete_{helper})'"
    # No file completes a number.
    return (" -r" if option.metavar == FILE else " -x") if option.takes_next else ""


def fish_option(when: str, option: Option, needed: str) -> str:
    """Return the line of an option."""
    name = f"-l {option.name[2:]}" if option.name.startswith("--") else f"-s {option.name[1:]}"
    return f"complete -c gdbheap -n '{when}' {name}{needed} -d {fish_quoted(told(option))}\n"


def fish_quoted(text: str) -> str:
    """Return a text in single quotes of fish."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def main() -> None:
    """Print the files, or write them."""
    if sys.argv[1:] not in ([], ["--write"]):
        raise SystemExit("usage: shell_pages.py [--write]")
    for name, text in texts().items():
        if sys.argv[1:]:
            (FOLDER / name).parent.mkdir(parents=True, exist_ok=True)
            (FOLDER / name).write_text(text, encoding="utf-8")
        else:
            sys.stdout.write(f"==> {name} <==\n{text}")


if __name__ == "__main__":
    main()
