"""What the shell's ``gdbheap`` does: find the noun and the target, read, let the process go, render."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Any

from gdbheap import __version__
from gdbheap.commands.answering import Told, ask, disclosing, present, status_of, told
from gdbheap.commands.called import native_stats, native_trim
from gdbheap.commands.declaration import GDB, Command, Option, Options, help_text, parse, wants_help
from gdbheap.commands.install import install, remove
from gdbheap.commands.nouns import COMMANDS, HEAP
from gdbheap.commands.progress import shown_for
from gdbheap.commands.trim import NOT_LIVE, wants_call
from gdbheap.errors import UsageError
from gdbheap.heap import Heap
from gdbheap.loader import SCRIPT
from gdbheap.report.numbers import parse_address
from gdbheap.report.style import style_for
from gdbheap.target.cloning import cloned
from gdbheap.target.core import Core
from gdbheap.target.open import parse_target
from gdbheap.target.process import Process, stopped

__all__ = ["run"]

TARGET = "TARGET"
EXTRA = (
    Option("--exe", "exe", "FILE", "the program that left the core, when it is not where the core says"),
    Option(
        "--clone", "clone", "",
        "answer from a copy of the process, which stands still only while the kernel copies its page tables and its"
        " mappings and residency are read, and pays for the pages that it writes while the copy lives; refused where"
        " there is no room for a copy",
    ),
    Option("--verbose", "verbose", "", "say for how long the process was stopped, also if that is no terminal"),
)  # fmt: skip
INSTALL, STATS, TRIM = "install", "stats", "trim"
# In gdb the command without a noun is called heap, and so it is understood here.
NOUNS = {**COMMANDS, GDB: HEAP}
NOT_ASKED = "only a live one can be asked itself"


def run(words: Sequence[str]) -> tuple[str, int]:
    """Do what ``words`` ask for. Returns the text for standard output and the exit status; raises GdbheapError."""
    if not words:
        raise UsageError("which process or core? gdbheap [NOUN] PID|CORE ('gdbheap --help' tells more)")
    noun, rest = _noun(words)
    if noun == INSTALL:
        return _install(rest), 0
    command = NOUNS[noun]
    if wants_help(words):
        return (help_text(command, _prog(command), TARGET, EXTRA) if noun else _overview()), 0
    if rest in (["--version"], ["--gdb-script"]) and not noun:
        return (f"gdbheap {__version__}" if rest == ["--version"] else str(SCRIPT)), 0
    return _answer(command, rest)


def _noun(words: Sequence[str]) -> tuple[str, list[str]]:
    """The noun, "" when there is none, and the other words. It is the first that is no option and no option's value."""
    valued = {
        option.name for command in COMMANDS.values() for option in (*command.all_options, *EXTRA) if option.metavar
    }
    skip = False
    for place, word in enumerate(words):
        if skip or word.startswith("--"):
            skip = word in valued and not skip
            continue
        if word in NOUNS or word == INSTALL:
            rest = [*words[:place], *words[place + 1 :]]
            # As in gdb another noun may follow: "heap holes".
            after = _noun(rest) if word == GDB else ("", rest)
            return after if after[0] in COMMANDS and after[0] else (word, rest)
        break
    return "", list(words)


def _prog(command: Command[Any]) -> str:
    return f"gdbheap {command.noun}".strip()


def _overview() -> str:
    """``gdbheap --help``: what there is, then the help of the command without a noun."""
    lines = [f"  {'':<12} {HEAP.question}"]
    lines += [f"  {noun:<12} {command.question}" for noun, command in COMMANDS.items() if noun]
    return "\n".join([
        "Where a process's memory went, down to the last page, and what to do about it.",
        "",
        "Usage: gdbheap [NOUN] TARGET [ADDRESS] [--option=VALUE]",
        "       gdbheap install [--remove]",
        "       gdbheap --version | --gdb-script | --help",
        "",
        "TARGET is a process id or the path of a core. NOUN is one of these, or left out (or heap):",
        "",
        *lines,
        "",
        "'gdbheap NOUN --help' tells more of one. 'gdbheap install' makes 'gdb -p PID -x gdbheap' work in",
        "any folder; 'gdbheap --gdb-script' prints the path of the script that gdb then loads.",
        "",
        "Exit status: 0 answered, 1 answered but damaged or partial, 2 wrong usage, 3 not permitted,",
        "4 no such process or not a core, 5 not supported.",
    ])  # fmt: skip


def _install(words: list[str]) -> str:
    if wants_help(words):
        return (
            "gdbheap install adds gdbheap's folder to gdb's source path in your gdbinit: 'gdb -x gdbheap' then works\n"
            "in any folder. gdbheap install --remove takes the line out again."
        )
    if words not in ([], ["--remove"]):
        raise UsageError(f"gdbheap install: unrecognized arguments: {' '.join(words)} (only --remove is known)")
    return remove() if words else install()


def _answer(command: Command[Any], words: list[str]) -> tuple[str, int]:
    options, extra, left = parse(command, words, _prog(command), extra=EXTRA)
    where, is_path = _target(command, left, options)
    if is_path and _calls(command, options):
        raise UsageError(
            f"{_prog(command)}: {NOT_LIVE if command.noun == TRIM else f'{where} is no process: {NOT_ASKED}'}"
        )
    if extra["clone"] and _calls(command, options):
        raise UsageError(f"{_prog(command)}: a copy is not asked itself: leave out --clone")
    if is_path:
        answered = _of_core(command, options, where, extra["exe"])
    else:
        answered = _of_process(command, options, int(where), extra)
    style = style_for(sys.stdout, options.exact, answered.about.rss, answered.about.private)
    return present(answered, style), status_of(answered)


def _target(command: Command[Any], left: list[str], options: Options) -> tuple[str, bool]:
    """The target and whether it is a core's path; takes the command's argument off ``left``."""
    prog = _prog(command)
    if not left:
        raise UsageError(f"{prog}: which process or core? ('{prog} --help' tells more)")
    target, arguments = left[0], left[1:]
    _check_noun(target, arguments)
    if len(arguments) > (1 if command.argument else 0):
        raise UsageError(f"{prog}: unrecognized arguments: {' '.join(arguments)} ('{prog} --help' tells more)")
    if command.argument and arguments:
        options.address = _address(prog, arguments[0])
    elif command.argument:
        raise UsageError(f"{prog}: which address? {prog} {target} {command.argument.metavar}")
    parsed = parse_target(target)
    return str(parsed), not isinstance(parsed, int)


def _check_noun(target: str, arguments: list[str]) -> None:
    """A word that could be a noun and is no file was meant as one."""
    if target.isidentifier() and not os.path.exists(target):
        nouns = ", ".join(noun for noun in COMMANDS if noun)
        raise UsageError(f"gdbheap: {target!r} is neither a noun ({nouns}) nor a process nor a file")


def _address(prog: str, text: str) -> int:
    try:
        return parse_address(text)
    except ValueError as error:
        raise UsageError(f"{prog}: {error}") from None


def _calls(command: Command[Any], options: Options) -> bool:
    """Whether the command calls a function in the process."""
    return command.noun == STATS or (command.noun == TRIM and wants_call(options))


def _of_core(command: Command[Any], options: Options, path: str, exe: str | None) -> Told:
    heap = Heap(Core(path, exe))
    with shown_for(heap):
        return ask(command, heap, options)


def _of_process(command: Command[Any], options: Options, pid: int, extra: dict[str, Any]) -> Told:
    limit = options.max_stop or None
    standing = (cloned if extra["clone"] else stopped)(pid, limit, command.copies)
    with standing as process:
        heap = Heap(process)
        with shown_for(heap):
            answered = _asked(command, heap, process, options)
    seconds = process.stopped_seconds
    if seconds is not None and (extra["verbose"] or sys.stderr.isatty()):
        print(f"gdbheap: process {pid} was stopped for {1000 * seconds:.0f} ms", file=sys.stderr)
    return answered


def _asked(command: Command[Any], heap: Heap, process: Process, options: Options) -> Told:
    """The answer; of a command that calls into the process, after the call."""
    if not _calls(command, options) or process.tracer is None:
        return ask(command, heap, options)
    with disclosing(heap, options):
        answer = (native_stats if command.noun == STATS else native_trim)(heap, process.tracer, options)
        return told(command, options, answer, heap)
