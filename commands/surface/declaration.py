"""The declaration of a command. The parsers of gdb and the shell, completion and help are made from it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
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
from gdbheap.dataclass import dataclass
from gdbheap.report.text.style import Style
from gdbheap.text import printable_record

if TYPE_CHECKING:
    from gdbheap.commands.inferior_calls.inferior_call import CallPurpose, Calls
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
"""The word after ``help`` that explains the options of all commands."""
NOTHING_LISTED = "have no effect here"


@dataclass(frozen=True)
class Argument:
    """The argument of a command, such as ADDRESS. Inside gdb, it follows the command's name; in a shell, it follows
    TARGET. A command has at most one argument."""

    metavar: str
    help: str


FILE = Argument("FILE", "write to FILE, or to standard output (-)")
QUERY = Argument("QUERY", "run this SQL query (DuckDB), in quotation marks")
FUNCTION = Argument("FUNCTION", "choose malloc, calloc, realloc or free")
ADDRESS = Argument("ADDRESS", "choose a block: an address (0x… or decimal), a holder's name, or gdb's expression")
SOME_ADDRESS = Argument("[ADDRESS]", ADDRESS.help)


@dataclass(frozen=True)
class Shown(Generic[Answer, Chosen]):
    """An answer with everything that a renderer needs.

    ``answer``: the answer after --sort and --top; all its texts are printable.
    ``raw``: the answer before --sort and --top. Its texts are unchanged, and may contain line breaks or escape
    sequences.
    ``left_out``: how many rows --top removed.
    ``damage``: damage that was found in memory (gdbheap.targets.target.Damage).
    ``options``: the command's options.
    """

    answer: Answer
    raw: Answer
    left_out: int
    damage: Sequence[Damage]
    options: Chosen
    style: Style

    @property
    def whole(self) -> Answer:
        """The whole answer with printable texts. The texts are converted on use, because the answer may have millions
        of rows."""
        return printable_record(self.raw)


def _always(_options: object) -> bool:
    return True


@dataclass(frozen=True)
class Call(Generic[Chosen, Answer]):
    """A call into the process that a command makes if its options ask for it.

    ``make``: a function that makes the call and returns the answer.
    ``wanted``: a function that returns whether the options ask for the call. It raises UsageError if options exclude
    each other.
    ``on_core``: the error message if the call is wanted but the target is a core.
    """

    purpose: CallPurpose
    make: Callable[[Heap, Calls, Chosen], Answer]
    on_core: str
    wanted: Callable[[Chosen], bool] = _always


@dataclass(frozen=True)
class Command(Generic[Subject, Chosen, Answer]):
    """A command: its texts, its options, its subject, and the functions that answer and render.

    ``summary``: one sentence without its full stop.
    ``text``: what a reader needs to understand the answer.
    ``details``: Markdown that is only in docs/commands.md and the manual page.
    ``headings``: the headings of groups of options in the help, each with the names of its options.

    ``options``: the dataclass of its options, ``Common`` or a subclass.
    ``rows``: the name of the list in the answer that --sort and --top change; "" if the answer changes its own rows.
    ``listing``: if answers are of several classes, the class that has this list.
    ``sorts_rows``: whether --sort applies to this list.
    ``listed``: the word for what --top counts; "" if it counts nothing.
    ``sorts``: for each KEY of --sort, a function that returns the value of a row. The largest value comes first. The
    first KEY is the default.
    ``top``: the default of --top, None for all rows.

    ``call``: a call into the process, None if the command never makes one.
    ``writes``: whether the command can write a file.
    ``lists_damage``: whether the table lists all damage; otherwise damage is listed below the answer.
    ``program``: the only program that the command supports, "" for all programs.
    ``without_memory``: answers about a process whose memory cannot be read, from public facts; None if the command
    cannot.
    ``of_snapshot``: answers from a snapshot and its path; None if the command cannot.
    """

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
        """The command's name in gdb, such as "heap holes"; its name in a shell if gdb does not have the command."""
        return self.shell_name if self.needs.shell_only else f"{GDB} {self.noun}".strip()

    @property
    def shell_name(self) -> str:
        """The command's name in a shell, such as "gdbheap holes"."""
        return f"{SHELL} {self.noun}".strip()

    @property
    def argument(self) -> Argument | None:
        return next((argument for kind, argument in ARGUMENTS.items() if issubclass(self.options, kind)), None)

    def call_for(self, options: Chosen) -> Call[Chosen, Answer] | None:
        """Return the call that these options ask for; None if they ask for none. Raises UsageError if options exclude
        each other."""
        return self.call if self.call is not None and self.call.wanted(options) else None

    @property
    def own_options(self) -> tuple[Option, ...]:
        """The options that only this command declares. Options that write trees for other programs come last."""
        own = [option for option in options_of(self.options) if option not in options_of(Common)]
        return tuple(sorted(own, key=lambda option: option in options_of(Pictured)))

    @property
    def listing_options(self) -> tuple[Option, ...]:
        """The options --top and --sort, each only if it has an effect on this command."""
        return (*([_top_option(self)] if self.listed else []), *([_sort_option(self)] if len(self.sorts) > 1 else []))

    @property
    def all_options(self) -> tuple[Option, ...]:
        """The options of this command, then the options that all commands have."""
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
