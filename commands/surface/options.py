"""Options of commands. Each is a field of a command's dataclass, which declares its name, type, default and help once.

Parsers, the help in gdb and in the shell, completion and docs/commands.md are made from these fields. The type checker
reports a command that reads an option which it does not declare."""

from __future__ import annotations

import os
import pwd
import re
from collections.abc import Callable, Sequence
from dataclasses import field, fields, replace
from typing import TYPE_CHECKING, Any, TypeVar

from gdbheap.contents.python.text.disclosure import NO_TEXT, VARIABLE
from gdbheap.dataclass import dataclass
from gdbheap.errors import UsageError
from gdbheap.files import PRIVATE, check_writable, own_descriptor
from gdbheap.report.text.numbers import parse_duration, parse_size
from gdbheap.text import bounded_number

if TYPE_CHECKING:
    from gdbheap.answers.by_root import RootShare

__all__ = [
    "Addressed",
    "Called",
    "Common",
    "Filed",
    "MaybeAddressed",
    "Option",
    "PICTURES",
    "Pictured",
    "Queried",
    "Several",
    "Writing",
    "check_contents",
    "check_csv_safe",
    "csv_safe",
    "duration",
    "minimum_size",
    "number_or_all",
    "process_of_log",
    "one_of",
    "options_of",
    "seconds",
    "whole_number",
    "recorded_calls",
    "regular_expression",
    "root_paths",
    "some_of",
    "some_time",
    "switch",
    "under_seccomp",
    "user_name",
    "valued",
]

Value = TypeVar("Value")
OPTION = "option"
MAX_SECONDS = 1e6
# A larger number of rows, calls or times means the same.
LARGEST_NUMBER = 1 << 40
STDOUT, STANDARD_OUTPUT = 1, "/dev/stdout"
MIB = 1 << 20
# The formats of trees (report/formats/stack_files.py). These four also have an option of their own.
PICTURES = ("folded", "svg", "speedscope", "pprof")


@dataclass(frozen=True)
class Option:
    """An option of a command.

    ``metavar``: the word that stands for the value in usage lines, "" for a switch.
    ``key``: the name of the field that the option sets.
    ``bare``: the text of the value if the user types only the option; None if a value is required. With ``bare``, a
    value must follow "=".
    ``needed``: the command does not work without the option.
    ``help``: a verb and at most twelve words, with the default in brackets.
    ``details``: sentences for places that have more room.
    """

    name: str
    metavar: str
    help: str
    parse: Callable[[str], Any] = str
    key: str = ""
    bare: str | None = None
    needed: bool = False
    details: str = ""

    @property
    def takes_next(self) -> bool:
        """Whether the option's value is the next word, if no "=" follows the name."""
        return bool(self.metavar) and self.bare is None

    @property
    def values(self) -> tuple[str, ...]:
        """The values that the option accepts, if these are a few words; otherwise empty."""
        found: tuple[str, ...] = getattr(self.parse, "names", ())
        return found

    @property
    def takes_several(self) -> bool:
        """Whether the option accepts several of ``values`` at once, separated by commas."""
        return bool(getattr(self.parse, "several", False))

    @property
    def spelling(self) -> str:
        """The option as usage lines show it, such as "--top=N"."""
        if self.bare is not None:
            return f"{self.name}[={self.metavar}]"
        between = "=" if self.name.startswith("--") else " "
        return f"{self.name}{between}{self.metavar}" if self.metavar else self.name


def switch(name: str, help: str, details: str = "") -> bool:
    """Declare a field for an option without a value. It is False unless the option is typed."""
    return field(default=False, metadata={OPTION: Option(name, "", help, details=details)})


def valued(
    name: str,
    metavar: str,
    help: str,
    default: Value,
    parse: Callable[[str], Value],
    bare: str | None = None,
    needed: bool = False,
    details: str = "",
) -> Value:
    """Declare a field that an option sets to ``parse(text)`` for the text of its value. ``parse`` raises ValueError.

    ``bare``: the text if no value is typed, None if a value must be typed. ``needed``: the command does not work
    without the option."""
    option = Option(name, metavar, help, parse, bare=bare, needed=needed, details=details)
    return field(default=default, metadata={OPTION: option})


def options_of(kind: type[Any]) -> tuple[Option, ...]:
    """Return the options that a dataclass declares, inherited ones first."""
    declared = ((found.name, found.metadata.get(OPTION)) for found in fields(kind))
    return tuple(replace(option, key=key) for key, option in declared if option is not None)


def one_of(names: Sequence[str]) -> Callable[[str], str]:
    """Return a parser that accepts one of these words."""

    def known(text: str) -> str:
        if text not in names:
            raise ValueError(f"{text!r} is not one of {', '.join(names)}")
        return text

    known.names = tuple(names)  # type: ignore[attr-defined]
    return known


def some_of(names: Sequence[str], always: Sequence[str] = ()) -> Callable[[str], tuple[str, ...]]:
    """Return a parser that accepts one or several of these words, separated by commas. ``always``: words that are added
    to each result."""
    known = one_of(names)

    def all_known(text: str) -> tuple[str, ...]:
        return tuple(dict.fromkeys([*map(known, text.split(",")), *always]))

    all_known.names = tuple(names)  # type: ignore[attr-defined]
    all_known.several = True  # type: ignore[attr-defined]
    return all_known


def seconds(text: str) -> float:
    """Parse a limit in seconds. Raises ValueError, also for "nan" and "inf"."""
    try:
        found = float(text)
    except ValueError:
        found = -1
    if not 0 <= found < MAX_SECONDS:
        raise ValueError(f"{text!r} is not a number of seconds")
    return found


@dataclass
class Common:
    """The options that all commands have.

    ``top``: the most rows, None for all.
    ``has_top``: whether --top was typed.
    ``is_printed``: whether the command has already printed its answer itself.
    ``sort``: a key of the command's ``sorts``, "" for the default order.
    The declaration of a command says whether it has --top and --sort (``top``, ``listed``, ``sorts``).
    """

    top: int | None = None
    sort: str = ""
    json: bool = switch("--json", "print one JSON document (docs/json.md)")
    exact: bool = switch("--bytes", "print sizes in bytes, not in KiB, MiB and GiB")
    no_text: bool = switch(
        NO_TEXT,
        "hide the contents of strings, bytes and keys",
        f"The lengths of these values are still shown. Setting the environment variable {VARIABLE}=1 has the same "
        "effect.",
    )
    max_stop: float = valued(
        "--max-stop", "SECONDS", "stop the process for at most SECONDS; 0: no limit [default: 5]", 5.0, seconds,
        details="After that time, the process runs on, the answer is partial, and the exit status is 1. In gdb, the "
            "process stays stopped as long as gdb is attached.",
    )  # fmt: skip

    has_top = is_printed = False

    def check(self) -> None:
        """Check the options before a process is stopped or a file is read. Raises UsageError if options exclude each
        other, or if a file cannot be written.

        The command's argument may still be unset. If the argument is a file, this method is called again once it is
        set."""


def check_contents(called: str, with_contents: bool, no_text: bool) -> None:
    """Raise UsageError if options ask both to show and to hide contents of memory. ``called``: the command as it is
    typed."""
    if with_contents and no_text:
        raise UsageError(f"{called}: --with-contents and --no-text exclude each other")


def csv_safe() -> bool:
    """Declare the field of --csv-safe: whether to escape cells that a spreadsheet would evaluate as formulas."""
    return switch("--csv-safe", "put an apostrophe before texts that spreadsheets would run as formulas")


def check_csv_safe(called: str, is_safe: bool, form: str, is_csv: bool) -> None:
    """Raise UsageError if --csv-safe is given but no CSV is written. ``form``: the option that asks for CSV."""
    if is_safe and not is_csv:
        raise UsageError(f"{called}: --csv-safe needs {form}")


@dataclass
class Addressed(Common):
    """The options of a command about one address. The address follows the command's name.

    gdb and the shell each parse the address, and refuse a line without one. The user may type the name of a holder
    instead. It is then replaced, before the answer is computed.
    ``name``: the typed name of a holder, None if an address was typed.
    ``share``: the blocks of a variable of C or C++ that was named, else None.
    """

    address: int = 0
    name: str | None = None
    share: RootShare | None = None


@dataclass
class MaybeAddressed(Common):
    """The options of a command that may be about one address. The address then follows the command's name.

    ``address``: None if none was typed; ``name`` and ``share``: as in Addressed.
    """

    address: int | None = None
    name: str | None = None
    share: RootShare | None = None


@dataclass
class Called(Common):
    """The options of a command about one function. The function's name follows the command's name."""

    function: str = ""


def file_mode(text: str) -> int:
    """Parse the octal permissions of a file. Raises ValueError."""
    if len(text) not in (3, 4) or set(text) - set("01234567") or int(text, 8) & ~0o066 != PRIVATE:
        raise ValueError(f"{text!r} is not a file mode such as 600, 640, 644, 660 or 664")
    return int(text, 8)


@dataclass
class Writing(Common):
    """The options of a command that writes files. ``mode``: the permissions of new files, by default readable only by
    their owner.
    """

    mode: int = valued(
        "--mode", "MODE", "set the mode of new files, such as 640 [default: 600]",
        PRIVATE, file_mode,
    )  # fmt: skip

    @property
    def takes_output(self) -> bool:
        """Whether the command writes a file to standard output, so that nothing else may be written there."""
        return own_descriptor(getattr(self, "file", "")) == STDOUT


@dataclass
class Filed(Writing):
    """The options of a command that writes a file. The path follows the command's name; "-" means standard output."""

    file: str = ""

    def check(self) -> None:
        """Replace "-" by the path of standard output. Raise UsageError if the file cannot be written."""
        if self.file == "-":
            self.file = STANDARD_OUTPUT
        if self.json and self.takes_output:
            raise UsageError(f"--json and {self.file} both write to standard output")
        if self.file:
            check_writable(self.file)


@dataclass
class Pictured(Writing):
    """The options of a command whose answer is a tree of sizes, which can be drawn. ``printed``: the tree that is
    printed instead of the answer, "" before it is made."""

    form: str | None = valued(
        "--format", "FORMAT",
        f"print a tree instead: {', '.join(PICTURES)} (with -o)", None, one_of(PICTURES),
    )  # fmt: skip
    output: str = valued("-o", "FILE", "write the tree of --format to FILE", "", str)
    folded: str | None = valued("--folded", "FILE", "write the tree as folded stacks (flamegraph.pl)", None, str)
    svg: str | None = valued("--svg", "FILE", "write the tree as a flame graph", None, str)
    speedscope: str | None = valued("--speedscope", "FILE", "write the tree for speedscope.app", None, str)
    pprof: str | None = valued("--pprof", "FILE", "write a profile for 'go tool pprof'", None, str)

    printed = ""

    @property
    def pictures(self) -> dict[str, str]:
        """The paths of the files to write, by the kind of file."""
        found = {kind: getattr(self, kind, None) for kind in PICTURES}
        if self.form is not None and self.output:
            found[self.form] = self.output
        return {kind: os.path.expanduser(path) for kind, path in found.items() if path}

    @property
    def prints_tree(self) -> bool:
        """Whether the tree is printed instead of the answer."""
        return self.form is not None and not self.output

    @property
    def draws(self) -> bool:
        """Whether the options ask to write or print the tree."""
        return self.prints_tree or bool(self.pictures)

    def check(self) -> None:
        """Raise UsageError if options exclude each other, or if one of the files cannot be written."""
        if self.output and self.form is None:
            raise UsageError(f"-o names the file for a picture: add --format={'|'.join(PICTURES)}")
        if self.prints_tree and self.form == "pprof":
            raise UsageError("a profile for pprof cannot be printed: add -o FILE")
        if self.prints_tree and self.json:
            raise UsageError("--json and --format both write to standard output: add -o FILE for the tree")
        if self.form is not None and self.output and getattr(self, self.form, None):
            raise UsageError(f"--format={self.form} and --{self.form} each name a file: give only one")
        for path in self.pictures.values():
            check_writable(path)


@dataclass
class Queried(Common):
    """The options of a command that runs a query. The query follows the command's name."""

    query: str = ""


def regular_expression(text: str) -> re.Pattern[str]:
    """Parse a regular expression. Raises ValueError if it is invalid, or empty (it would match everything)."""
    if not text:
        raise ValueError("an empty expression would match every process")
    try:
        return re.compile(text)
    except re.error as error:
        raise ValueError(f"{text!r} is not a regular expression: {error}") from None


def user_id(text: str) -> int:
    """Return the uid of a user. ``text``: the user's name or the uid. Raises ValueError."""
    if text.isascii() and text.isdecimal():
        return int(text)
    try:
        return pwd.getpwnam(text).pw_uid
    except KeyError:
        raise ValueError(f"there is no user {text!r}") from None


def user_name(uid: int) -> str:
    """Return a user's name, or the uid if the user has none."""
    try:
        return pwd.getpwuid(uid).pw_name
    except (KeyError, OverflowError):
        return str(uid)


@dataclass
class Several(Common):
    """The options that choose processes, for a command about several of them. The chosen processes are added to those
    that the command line names."""

    children: bool = switch("--children", "add all descendants of the processes, also future ones")
    name: re.Pattern[str] | None = valued(
        "--name", "REGEX", "choose processes by name, program or script (REGEX)", None, regular_expression
    )
    cgroup: str | None = valued("--cgroup", "PATH", "choose processes of a control group and nested groups", None, str)
    user: int | None = valued("--user", "USER", "keep only processes of USER (with --name or --cgroup)", None, user_id)

    def check_user(self, called: str, named: bool) -> None:
        """Raise UsageError if --user is given without --name or --cgroup, or together with process ids. ``named``:
        whether the line has ids."""
        if self.user is not None and (named or (self.name is None and self.cgroup is None)):
            raise UsageError(f"{called}: --user works only with --name or --cgroup, and without process ids")


def some_time(text: str) -> float:
    """Parse a duration above 0. Return seconds. Raises ValueError."""
    seconds = parse_duration(text)
    if not seconds:
        raise ValueError(f"{text!r} is not a time above 0")
    return seconds


def whole_number(text: str) -> int:
    """Parse a whole number, where 0 usually means no limit. Raises ValueError."""
    if not (text.isascii() and text.isdecimal()):
        raise ValueError(f"{text!r} is not a number")
    return bounded_number(text, LARGEST_NUMBER)


def number_or_all(what: str) -> Callable[[str], int]:
    """Return a parser of a number, in which 0 or "all" means no limit. ``what``: the words for the expected value in
    its error message."""

    def number(text: str) -> int:
        if text != "all" and not (text.isascii() and text.isdecimal()):
            raise ValueError(f"{text!r} is not {what}")
        return 0 if text == "all" else bounded_number(text, LARGEST_NUMBER)

    return number


def duration(help: str) -> float | None:
    """Declare the field of --duration: seconds, or None for no limit. The user types a number of seconds, or a number
    with a unit (90, 1.5s, 10m, 2h).
    """
    return valued("--duration", "TIME", help, None, some_time)


def minimum_size() -> int:
    """Declare the field of --min for commands about holes: the size in bytes of the smallest hole to list, 1 MiB by
    default.
    """
    about = "skip holes smaller than SIZE [default: 1M]"
    return valued("--min", "SIZE", about, MIB, parse_size)


def root_paths() -> bool:
    """Declare the field of --path: whether to show, for each listed block, the path from a root to it."""
    about = "show the path from a root to each block (at most 2,000)"
    return switch("--path", about)


def process_of_log() -> int | None:
    """Declare the field of --process: the id of the process of a trace to examine. None: the process with the most
    calls.
    """
    about = "choose a process of the trace [default: the one with most calls]"
    return valued("--process", "PID", about, None, whole_number)


def recorded_calls() -> str | None:
    """Declare the field of --calls: the path of a trace in which to find the stack that allocated a block; None for no
    trace.
    """
    about = "show the stack that allocated the block, from a trace with --stacks"
    return valued("--calls", "FILE", about, None, os.path.expanduser)


def under_seccomp() -> bool:
    """Declare the field of --seccomp: whether to call into the process although a seccomp filter may kill it
    for that.
    """
    about = "work even under seccomp, which may kill the process"
    return switch("--seccomp", about)
