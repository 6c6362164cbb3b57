"""What a command is: one declaration, from which both parsers (gdb's and the shell's), completion and help come."""

from __future__ import annotations

import argparse
import os
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, NoReturn, TypeVar

from gdbheap.errors import UsageError
from gdbheap.objects.disclosure import NO_TEXT, VARIABLE, wanted
from gdbheap.report.numbers import parse_address, parse_size
from gdbheap.report.style import Style

if TYPE_CHECKING:
    from gdbheap.heap import Heap
    from gdbheap.target.target import Damage

__all__ = [
    "GDB",
    "Argument",
    "Command",
    "Option",
    "Options",
    "Shown",
    "address_of",
    "help_text",
    "parse",
    "usage",
    "wants_help",
]

Answer = TypeVar("Answer")
GDB = "heap"
SHELL = "gdbheap"
MOST_SECONDS = 1e6
NOTHING_LISTED = "accepted by every command; this one lists nothing that it could change"


@dataclass
class Options:
    """What was typed. ``top`` None: all rows; ``sort`` "": the command's own order; sizes in bytes; ``states``,
    ``arena`` (an index) and ``type`` (a pattern) say which chunks are meant."""

    json: bool = False
    exact: bool = False
    no_text: bool = False
    top: int | None = None
    sort: str = ""
    minimum: int = 0
    address: int | None = None
    seccomp: bool = False
    detail: bool = False
    states: tuple[str, ...] = ()
    maximum: int | None = None
    arena: int | None = None
    type: str | None = None
    fit: int | None = None
    listing: bool = False
    by: str = "object"
    path: bool = False
    yes: bool = False
    dry_run: bool = False
    pad: int = 0
    svg: str | None = None
    cell: int = 0
    buffers: bool = False
    allocator: str | None = None
    max_stop: float = 5.0


@dataclass(frozen=True)
class Option:
    """An option. ``metavar`` "" makes it a switch. ``key`` is the field of Options that it sets."""

    name: str
    key: str
    metavar: str
    help: str
    parse: Callable[[str], Any] = str

    @property
    def spelling(self) -> str:
        """How usage lines show it."""
        return f"{self.name}={self.metavar}" if self.metavar else self.name


@dataclass(frozen=True)
class Argument:
    """What follows the noun, besides a shell's TARGET. There is at most one."""

    metavar: str
    help: str


@dataclass(frozen=True)
class Shown(Generic[Answer]):
    """What a renderer gets: the answer sorted and cut, the whole one, how many rows were cut off, the damage that was
    met (gdbheap.target's records), and what was asked for."""

    answer: Answer
    whole: Answer
    left_out: int
    damage: Sequence[Damage]
    options: Options
    style: Style


@dataclass(frozen=True)
class Command(Generic[Answer]):
    """One question: its words, its options, the function that answers and the one that renders.

    ``rows`` names the answer's list that --sort and --top are about ("" when there is none; an answer without that
    list sorts and cuts itself), ``listed`` is the word for what --top counts ("" when it counts nothing). ``sorts``
    maps each KEY to what a row is ordered by, largest first; the first one is the default. ``top`` is the default of
    --top, None for all rows. ``copies``: it computes for long from nearly all that it reads, so that a live process is
    let go once its memory is copied."""

    noun: str
    question: str
    text: str
    example: str
    answer: Callable[[Heap, Options], Answer]
    render: Callable[[Shown[Answer]], str]
    argument: Argument | None = None
    options: tuple[Option, ...] = ()
    defaults: dict[str, Any] = field(default_factory=dict)
    rows: str = ""
    listed: str = "rows"
    sorts: dict[str, Callable[[Any], Any]] = field(default_factory=dict)
    top: int | None = None
    copies: bool = False

    @property
    def name(self) -> str:
        """The words that call it in gdb: "heap holes"."""
        return f"{GDB} {self.noun}".strip()

    @property
    def all_options(self) -> tuple[Option, ...]:
        """Its own options, then those that every command has."""
        return (*self.options, _top_option(self), _sort_option(self), *COMMON)


def address_of(noun: str, options: Options) -> int:
    """The address that was typed. Raises UsageError where none was."""
    if options.address is None:
        raise UsageError(f"{GDB} {noun}: which address? Type it after the noun")
    return options.address


def _count(text: str) -> int:
    if text == "all":
        return 0
    if not (text.isascii() and text.isdecimal()):
        raise ValueError(f"{text!r} is not a number of rows")
    return int(text)


def _top_option(command: Command[Any]) -> Option:
    cut = f"the default is {command.top}, with --json all; 0 or 'all' lists all"
    default = cut if command.top else "the default is all"
    about = f"how many {command.listed} to list ({default})" if command.listed else NOTHING_LISTED
    return Option("--top", "top", "N", about, _count)


def _sort_option(command: Command[Any]) -> Option:
    keys = ", ".join(command.sorts)

    def known(text: str) -> str:
        if keys and text not in command.sorts:
            raise ValueError(f"{text!r} is none of {keys}")
        return text

    about = f"what to order by, largest first: {keys}; the default is {keys.split(',')[0]}" if keys else NOTHING_LISTED
    return Option("--sort", "sort", "KEY", about, known)


def _seconds(text: str) -> float:
    """Raises ValueError, also for what is no number ("nan") or never ends ("inf")."""
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1
    if not 0 <= seconds < MOST_SECONDS:
        raise ValueError(f"{text!r} is not a number of seconds")
    return seconds


COMMON = (
    Option("--json", "json", "", "print one JSON document on standard output and nothing else"),
    Option("--bytes", "exact", "", "print sizes in bytes with thousands separators, not in KiB, MiB and GiB"),
    Option(
        NO_TEXT, "no_text", "", f"show no contents of strings, bytes and keys, only their lengths ({VARIABLE}=1 too)"
    ),
    Option(
        "--max-stop", "max_stop", "SECONDS",
        "the longest that a live process stands still (the default is 5, 0 is without a limit); then it runs on and the"
        " answer holds what was read by then, with status 1. gdb holds a process for as long as it is attached",
        _seconds,
    ),
)  # fmt: skip
LEAST = "leave out what is smaller (the default is 1M; K, M, G and T are powers of 1024)"
SECCOMP = Option(
    "--seccomp", "seccomp", "",
    "make the calls although the process runs under a seccomp filter, which may refuse them or kill it",
)  # fmt: skip
PATH = Option(
    "--path", "path", "",
    "also say how roots lead to the blocks that are listed, up to 2,000 of them (reads all references)",
)  # fmt: skip
MINIMUM = Option("--min", "minimum", "SIZE", LEAST, parse_size)


class _Parser(argparse.ArgumentParser):
    """argparse that raises: inside gdb an exit would end as a Python exception, in a shell as two lines."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{self.prog}: {message} ({_help_call(self.prog)} tells more)")


def _help_call(prog: str) -> str:
    return f"'{prog} --help'" if prog.startswith(SHELL) else f"'help {prog}'"


def _typed(option: Option) -> Callable[[str], Any]:
    """The option's parser with its own words in argparse's message."""

    def convert(text: str) -> Any:
        try:
            return option.parse(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return convert


def _parser(command: Command[Any], prog: str, extra: Sequence[Option]) -> argparse.ArgumentParser:
    parser = _Parser(prog=prog, add_help=False, allow_abbrev=False)
    for option in (*command.all_options, *extra):
        if option.metavar:
            parser.add_argument(option.name, dest=option.key, metavar=option.metavar, type=_typed(option))
        else:
            parser.add_argument(option.name, dest=option.key, action="store_true")
    parser.add_argument("words", nargs="*", metavar=command.argument.metavar if command.argument else "WORD")
    return parser


def wants_help(words: Sequence[str]) -> bool:
    """Whether the line asks for help and nothing else matters."""
    return "--help" in words or "-h" in words


def parse(
    command: Command[Any],
    words: Sequence[str],
    prog: str = "",
    address: Callable[[str], int] = parse_address,
    extra: Sequence[Option] = (),
) -> tuple[Options, dict[str, Any], list[str]]:
    """Options, the values of ``extra``, and the words that are neither, of one command line.

    ``address`` turns the command's argument into an address (in gdb, any expression). Raises UsageError in one line."""
    prog = prog or command.name
    parser = _parser(command, prog, extra)
    known, rest = _split(words, command, extra, parser)
    found = vars(parser.parse_args([*known, "--", *rest]))
    others = {option.key: found.pop(option.key) for option in extra}
    left = [word for word in found.pop("words") if word != "--"]
    return _options(command, found), others, left


def _split(
    words: Sequence[str], command: Command[Any], extra: Sequence[Option], parser: argparse.ArgumentParser
) -> tuple[list[str], list[str]]:
    """The options with their values, and the rest: an expression may hold words that begin with a hyphen."""
    valued = {option.name for option in (*command.all_options, *extra) if option.metavar}
    known: list[str] = []
    rest: list[str] = []
    waiting = iter(words)
    for word in waiting:
        if not _is_option(word, command):
            rest.append(word)
            continue
        known.append(word)
        if word in valued:
            value = next(waiting, None)
            if value is None:
                parser.error(f"argument {word}: expected one argument")
            known[-1] = f"{word}={value}"
    return known, rest


def _is_option(word: str, command: Command[Any]) -> bool:
    """Two hyphens and a name; one hyphen and a letter too, unless it may be part of an expression ("-offset")."""
    if command.argument is not None:
        return word.startswith("--") and len(word) > 2
    return word.startswith("-") and word.lstrip("-")[:1].isalpha()


def _options(command: Command[Any], found: dict[str, Any]) -> Options:
    values = {key: value for key, value in found.items() if value is not None}
    # A table is cut to what a person reads; a document is cut only when that was asked for.
    top = None if values.get("json") else command.top
    options = Options(**{"top": top, **command.defaults, **values})
    options.no_text = options.no_text or wanted(os.environ)
    if not options.top:
        options.top = None
    options.sort = options.sort or next(iter(command.sorts), "")
    return options


def usage(command: Command[Any], prog: str, target: str = "", extra: Sequence[Option] = ()) -> str:
    """The usage line: "heap holes [--min=SIZE] …"."""
    words = [prog, target, command.argument.metavar if command.argument else ""]
    options = [f"[{option.spelling}]" for option in (*command.all_options, *extra)]
    return " ".join(word for word in [*words, *options] if word)


def help_text(command: Command[Any], prog: str = "", target: str = "", extra: Sequence[Option] = ()) -> str:
    """One sentence, the usage, what it means, a paragraph per argument and option, an example."""
    prog = prog or command.name
    paragraphs = [command.question, "Usage: " + usage(command, prog, target, extra), _filled(command.text)]
    if command.argument:
        paragraphs.append(_entry(command.argument.metavar, command.argument.help))
    paragraphs.extend(_entry(option.spelling, option.help) for option in (*command.all_options, *extra))
    paragraphs.append(f"Example:\n  {_example(command, prog, target)}")
    return "\n\n".join(paragraphs)


def _example(command: Command[Any], prog: str, target: str) -> str:
    """The example as it is typed here: a shell has the target after the noun."""
    rest = command.example[len(command.name) :].strip()
    return " ".join(word for word in (prog, "1234" if target else "", rest) if word)


def _filled(text: str) -> str:
    return "\n\n".join(textwrap.fill(" ".join(part.split()), 78) for part in text.strip().split("\n\n"))


def _entry(title: str, text: str) -> str:
    return textwrap.fill(f"{title}: {text}.", 78, initial_indent="  ", subsequent_indent="      ")
