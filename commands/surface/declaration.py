"""What a command is: one declaration, from which both parsers (gdb's and the shell's), completion and help come."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from gdbheap.commands.surface.needs import Needs
from gdbheap.commands.surface.options import (
    Addressed,
    Called,
    Common,
    Filed,
    MaybeAddressed,
    Option,
    Pictured,
    Queried,
    number_or_all,
    one_of,
    options_of,
)
from gdbheap.report.text.style import Style
from gdbheap.text import printable_record

if TYPE_CHECKING:
    from gdbheap.commands.inferior_calls.inferior_call import Calls, Purpose
    from gdbheap.heap import Heap
    from gdbheap.targets.target import Damage

__all__ = [
    "ADDRESS",
    "FILE",
    "FUNCTION",
    "GDB",
    "NOTHING_LISTED",
    "OPTIONS",
    "QUERY",
    "SHELL",
    "AnyCommand",
    "Argument",
    "Call",
    "Command",
    "Shown",
]

Answer = TypeVar("Answer")
Subject = TypeVar("Subject")
Chosen = TypeVar("Chosen", bound=Common)
GDB = "heap"
SHELL = "gdbheap"
OPTIONS = "options"
"""The word after ``help`` that explains the options of every command."""
NOTHING_LISTED = "change nothing here"


@dataclass(frozen=True)
class Argument:
    """What follows the noun, besides a shell's TARGET. There is at most one."""

    metavar: str
    help: str


FILE = Argument("FILE", "write to FILE, or to standard output (-)")
QUERY = Argument("QUERY", "ask this query of DuckDB's, in quotation marks")
FUNCTION = Argument("FUNCTION", "choose malloc, calloc, realloc or free")
ADDRESS = Argument("ADDRESS", "choose a block: 0x…, decimal, holder's name, in gdb any expression")
SOME_ADDRESS = Argument("[ADDRESS]", ADDRESS.help)


@dataclass(frozen=True)
class Shown(Generic[Answer, Chosen]):
    """What a renderer gets: the answer sorted and cut, the whole one, how many rows were cut off, the damage that was
    met (gdbheap.target's records), and what was asked for. All texts of these are printable: none of a target's names
    has a line break or a terminal's escape."""

    answer: Answer
    raw: Answer
    left_out: int
    damage: Sequence[Damage]
    options: Chosen
    style: Style

    @property
    def whole(self) -> Answer:
        """The answer before it was cut. Made when it is asked for: it may have millions of rows."""
        return printable_record(self.raw)


def _always(_options: object) -> bool:
    return True


@dataclass(frozen=True)
class Call(Generic[Chosen, Answer]):
    """A call into the process, which a command makes where its options ask for it.

    ``make`` calls and answers. ``wanted`` says whether the options ask for the call; it raises UsageError for options
    that exclude each other. ``on_core`` is what a user is told who asks for it where there is only a core."""

    purpose: Purpose
    make: Callable[[Heap, Calls, Chosen], Answer]
    on_core: str
    wanted: Callable[[Chosen], bool] = _always


@dataclass(frozen=True)
class Command(Generic[Subject, Chosen, Answer]):
    """One question: its words, its options, what it needs, the function that answers and the one that renders.

    ``summary`` is one sentence without its full stop, ``text`` what a reader needs to read the answer, ``details`` what
    docs/commands.md and the manual page say besides, as Markdown. ``headings`` groups options in help: each heading
    with the names below it.

    ``options`` is the dataclass of its options: ``Common``, or one of its own that adds to it. ``rows`` names the
    answer's list that --sort and --top are about ("" when there is none; an answer without that list sorts and cuts
    itself), of several kinds of answers those of the kind ``listing``; ``sorts_rows``: whether --sort is about it, too;
    ``listed`` is the word for what --top counts ("" when it counts nothing). ``sorts`` maps each KEY to what a row is
    ordered by, largest first; the first one is the default. ``top`` is the default of --top, None for all rows.

    ``call``: it calls into the process. ``writes``: an option of its own makes it write a file.
    ``lists_damage``: its table has all damage; other commands list it below theirs. ``program``: the only program that
    it is about; of others it says that it is not supported ("" when it is about all). ``without_memory``: what it
    answers of a process of which nothing but what everybody may know can be read; None where that is nothing.
    ``of_snapshot``: makes its answer of a snapshot and the path of that; None where it takes no snapshot."""

    noun: str
    summary: str
    text: str
    example: str
    needs: Needs[Subject]
    options: type[Chosen]
    answer: Callable[[Subject, Chosen], Answer]
    render: Callable[[Shown[Answer, Chosen]], str]
    details: str = ""
    headings: Mapping[str, Sequence[str]] = field(default_factory=dict)
    rows: str = ""
    listing: type[Any] | None = None
    sorts_rows: bool = True
    listed: str = "rows"
    sorts: dict[str, Callable[[Any], Any]] = field(default_factory=dict)
    top: int | None = None
    call: Call[Chosen, Answer] | None = None
    writes: bool = False
    lists_damage: bool = False
    program: str = ""
    without_memory: Callable[[Any], Answer] | None = None
    of_snapshot: Callable[[Any, str, Chosen], Answer] | None = None

    @property
    def name(self) -> str:
        """The words that call it in gdb: "heap holes"; where gdb has none, those in a shell."""
        return self.shell_name if self.needs.shell_only else f"{GDB} {self.noun}".strip()

    @property
    def shell_name(self) -> str:
        """The words that call it in a shell: "gdbheap holes"."""
        return f"{SHELL} {self.noun}".strip()

    @property
    def argument(self) -> Argument | None:
        """What follows the noun, if anything does."""
        return next((argument for kind, argument in ARGUMENTS.items() if issubclass(self.options, kind)), None)

    def call_for(self, options: Chosen) -> Call[Chosen, Answer] | None:
        """The call that these options ask for. Raises UsageError where they exclude each other."""
        return self.call if self.call is not None and self.call.wanted(options) else None

    @property
    def own_options(self) -> tuple[Option, ...]:
        """The options that it declares itself; files for other programs come last."""
        own = [option for option in options_of(self.options) if option not in options_of(Common)]
        return tuple(sorted(own, key=lambda option: option in options_of(Pictured)))

    @property
    def listing_options(self) -> tuple[Option, ...]:
        """--top and --sort, where they change something."""
        return (*([_top_option(self)] if self.listed else []), *([_sort_option(self)] if len(self.sorts) > 1 else []))

    @property
    def all_options(self) -> tuple[Option, ...]:
        """Its own options, then those that every command has."""
        return (*self.own_options, _top_option(self), _sort_option(self), *options_of(Common))


AnyCommand = Command[Any, Any, Any]
ARGUMENTS: dict[type[Common], Argument] = {
    Addressed: ADDRESS,
    MaybeAddressed: SOME_ADDRESS,
    Filed: FILE,
    Called: FUNCTION,
    Queried: QUERY,
}


def _top_option(command: AnyCommand) -> Option:
    about = f"list at most N {command.listed} [default: {command.top or 'all'}]" if command.listed else NOTHING_LISTED
    return Option("--top", "N", about, number_or_all("a number of rows"), "top")


def _sort_option(command: AnyCommand) -> Option:
    keys = list(command.sorts)
    *first, last = keys or [""]
    named = f"{', '.join(first)} or {last}" if first else last
    known = f"sort by {named} [default: {keys[0]}]" if keys else NOTHING_LISTED
    return Option("--sort", "KEY", known, one_of(keys) if keys else str, "sort")
