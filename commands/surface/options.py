"""Options: each is a field of a command's own dataclass, which declares its name, type, default and help once.

Parsers, both helps, completion and docs/commands.md are made from these fields. The type checker reports a command that
reads an undeclared option."""

from __future__ import annotations

import os
import pwd
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, TypeVar

from gdbheap.contents.python.text.disclosure import NO_TEXT, VARIABLE
from gdbheap.errors import UsageError
from gdbheap.files import PRIVATE, check_writable, own_descriptor
from gdbheap.report.text.numbers import parse_duration, parse_size

__all__ = [
    "Addressed",
    "Called",
    "Common",
    "Filed",
    "MaybeAddressed",
    "Option",
    "PICTURES",
    "PPROF",
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
STDOUT, STANDARD_OUTPUT = 1, "/dev/stdout"
MIB = 1 << 20
PPROF = "pprof"
PICTURES = ("folded", "svg", "speedscope", PPROF)


@dataclass(frozen=True)
class Option:
    """An option.

    ``metavar``: "" for a switch; ``key``: the field that it sets; ``bare``: its value if none is typed, None if one is
    required; an option with ``bare`` takes its value only after "=". ``needed``: the command refuses without it.
    ``help``: a verb and at most twelve words, with the default in brackets; ``details``: sentences for where there is
    more room."""

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
        """Whether the next word is its value if none follows after "="."""
        return bool(self.metavar) and self.bare is None

    @property
    def values(self) -> tuple[str, ...]:
        """The values that it accepts, if these are a few words; else empty."""
        found: tuple[str, ...] = getattr(self.parse, "names", ())
        return found

    @property
    def takes_several(self) -> bool:
        """Whether it accepts several of ``values``, separated by commas."""
        return bool(getattr(self.parse, "several", False))

    @property
    def spelling(self) -> str:
        """The option as usage lines show it."""
        if self.bare is not None:
            return f"{self.name}[={self.metavar}]"
        between = "=" if self.name.startswith("--") else " "
        return f"{self.name}{between}{self.metavar}" if self.metavar else self.name


def switch(name: str, help: str, details: str = "") -> bool:
    """Declare a field that is False unless its option is typed."""
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
    """Declare a field that an option sets to the result of ``parse`` for its text; ``parse`` raises ValueError.

    ``bare``: the text if no value is typed, None if one is required. ``needed``: the command refuses without it."""
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
            raise ValueError(f"{text!r} is none of {', '.join(names)}")
        return text

    known.names = tuple(names)  # type: ignore[attr-defined]
    return known


def some_of(names: Sequence[str], always: Sequence[str] = ()) -> Callable[[str], tuple[str, ...]]:
    """Return a parser that accepts one or more of these words, separated by commas. ``always``: words that are always
    added."""
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
    """The options of every command.

    ``top``: the most rows, None for all; ``has_top``: whether --top was typed; ``sort``: a key of the command's
    ``sorts``, or "". The command's ``top``, ``listed`` and ``sorts`` declare --top and --sort."""

    top: int | None = None
    sort: str = ""
    json: bool = switch("--json", "print one JSON document (docs/json.md)")
    exact: bool = switch("--bytes", "print exact bytes, not KiB, MiB and GiB")
    no_text: bool = switch(
        NO_TEXT,
        "hide the contents of strings, bytes and keys",
        f"Their lengths stay. The environment variable {VARIABLE}=1 does the same.",
    )
    max_stop: float = valued(
        "--max-stop", "SECONDS", "stop the process for at most SECONDS; 0: no limit [default: 5]", 5.0, seconds,
        details="After that it runs on, the answer is partial, and the status is 1. gdb stops a process for as long as"
        " it is attached.",
    )  # fmt: skip

    has_top = False

    def check(self) -> None:
        """Check the options before a process is stopped or a file is read. Raises UsageError for options that exclude
        each other, and for a file that cannot be written.

        The argument after the noun need not be set yet; if it is a file, this is called again once it is."""


def check_contents(called: str, with_contents: bool, no_text: bool) -> None:
    """Raise UsageError if contents are both asked for and refused. ``called``: the command as it is typed."""
    if with_contents and no_text:
        raise UsageError(f"{called}: --with-contents and --no-text exclude each other")


def csv_safe() -> bool:
    """Declare the field of --csv-safe, for a command that writes CSV."""
    return switch("--csv-safe", "write an apostrophe before texts that a spreadsheet would compute")


def check_csv_safe(called: str, is_safe: bool, form: str, is_csv: bool) -> None:
    """Raise UsageError if --csv-safe is given without CSV. ``form``: the option that asks for CSV."""
    if is_safe and not is_csv:
        raise UsageError(f"{called}: --csv-safe is for {form}")


@dataclass
class Addressed(Common):
    """The options of a command about one address, which follows its noun.

    gdb and the shell each parse the address in their own way, and refuse a line without one. ``name``: a word typed
    instead of an address, which may name a holder."""

    address: int = 0
    name: str | None = None


@dataclass
class MaybeAddressed(Common):
    """The options of a command that may be about one address, which then follows its noun.

    ``address``: None without one; ``name``: a word typed instead, which may name a holder."""

    address: int | None = None
    name: str | None = None


@dataclass
class Called(Common):
    """The options of a command about a function, which follows its noun."""

    function: str = ""


def file_mode(text: str) -> int:
    """Parse the octal permissions of a file. Raises ValueError."""
    if len(text) not in (3, 4) or set(text) - set("01234567") or int(text, 8) & ~0o066 != PRIVATE:
        raise ValueError(f"{text!r} is not a file mode such as 600, 640, 644, 660 or 664")
    return int(text, 8)


@dataclass
class Writing(Common):
    """The options of a command that writes files."""

    mode: int = valued(
        "--mode", "MODE", "set written files' mode, such as 640 [default: 600]",
        PRIVATE, file_mode,
    )  # fmt: skip

    @property
    def takes_output(self) -> bool:
        """Whether the file goes to standard output, so that nothing else may."""
        return own_descriptor(getattr(self, "file", "")) == STDOUT


@dataclass
class Filed(Writing):
    """The options of a command that writes a file, whose path follows its noun; "-" is standard output."""

    file: str = ""

    def check(self) -> None:
        """Raise UsageError if the file cannot be written."""
        if self.file == "-":
            self.file = STANDARD_OUTPUT
        if self.json and self.takes_output:
            raise UsageError(f"--json and {self.file} both want standard output")
        if self.file:
            check_writable(self.file)


@dataclass
class Pictured(Writing):
    """The options of a command whose answer is a tree of sizes, which can be drawn. ``printed``: the tree that is
    printed instead of the answer, once it is made."""

    form: str | None = valued(
        "--format", "FORMAT",
        "print the tree instead: folded, svg, speedscope, or pprof (with -o)", None, one_of(PICTURES),
    )  # fmt: skip
    output: str = valued("-o", "FILE", "write the tree of --format to FILE", "", str)
    folded: str | None = valued("--folded", "FILE", "write folded stacks (flamegraph.pl)", None, str)
    svg: str | None = valued("--svg", "FILE", "write a flame graph", None, str)
    speedscope: str | None = valued("--speedscope", "FILE", "write a file for speedscope.app", None, str)
    pprof: str | None = valued("--pprof", "FILE", "write a profile for go tool pprof", None, str)

    printed = ""

    @property
    def pictures(self) -> dict[str, str]:
        """The paths of the files to write, by their kind."""
        found = {kind: getattr(self, kind) for kind in PICTURES}
        if self.form is not None and self.output:
            found[self.form] = self.output
        return {kind: os.path.expanduser(path) for kind, path in found.items() if path}

    @property
    def prints_tree(self) -> bool:
        """Whether the tree is printed instead of the answer."""
        return self.form is not None and not self.output

    @property
    def draws(self) -> bool:
        """Whether any tree is asked for."""
        return self.prints_tree or bool(self.pictures)

    def check(self) -> None:
        """Raise UsageError for options that exclude each other, and if one of the files cannot be written."""
        if self.output and self.form is None:
            raise UsageError(f"-o is the file that --format writes: --format={'|'.join(PICTURES)}")
        if self.prints_tree and self.form == PPROF:
            raise UsageError("a profile for pprof is no text: -o FILE")
        if self.prints_tree and self.json:
            raise UsageError("--json and --format print different things: -o FILE writes the tree")
        if self.form is not None and self.output and getattr(self, self.form):
            raise UsageError(f"--format={self.form} and --{self.form} each name a file: one of them")
        for path in self.pictures.values():
            check_writable(path)


@dataclass
class Queried(Common):
    """The options of a command that takes a query, which follows its noun."""

    query: str = ""


def regular_expression(text: str) -> re.Pattern[str]:
    """Parse a regular expression that does not match everything. Raises ValueError."""
    if not text:
        raise ValueError("an empty expression means every process")
    try:
        return re.compile(text)
    except re.error as error:
        raise ValueError(f"{text!r} is no regular expression: {error}") from None


def user_id(text: str) -> int:
    """Return a uid from a user's name or the uid itself. Raises ValueError."""
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
    """The options that choose processes, for a command about several, in addition to those named on the line."""

    children: bool = switch("--children", "add the given processes' descendants, now and later")
    name: re.Pattern[str] | None = valued(
        "--name", "REGEX", "choose processes by name, program or script", None, regular_expression
    )
    cgroup: str | None = valued("--cgroup", "PATH", "choose a control group's processes, nested ones too", None, str)
    user: int | None = valued("--user", "USER", "keep only processes of USER (with --name or --cgroup)", None, user_id)

    def check_user(self, called: str, named: bool) -> None:
        """Raise UsageError if --user is given without --name or --cgroup, or with ids. ``named``: the line has ids."""
        if self.user is not None and (named or (self.name is None and self.cgroup is None)):
            raise UsageError(f"{called}: --user needs --name or --cgroup, from which it chooses, and no ids")


def some_time(text: str) -> float:
    """Parse a duration above 0 into seconds. Raises ValueError."""
    seconds = parse_duration(text)
    if not seconds:
        raise ValueError(f"{text!r} is no time at all")
    return seconds


def whole_number(text: str) -> int:
    """Parse a count; 0 means no limit. Raises ValueError."""
    if not (text.isascii() and text.isdecimal()):
        raise ValueError(f"{text!r} is not a number")
    return int(text)


def number_or_all(what: str) -> Callable[[str], int]:
    """Return a parser of a number; 0 or "all" means no limit. ``what``: what it expects, in its error."""

    def number(text: str) -> int:
        if text != "all" and not (text.isascii() and text.isdecimal()):
            raise ValueError(f"{text!r} is not {what}")
        return 0 if text == "all" else int(text)

    return number


def duration(help: str) -> float | None:
    """Declare the field of --duration, in seconds or with a unit: 90, 1.5s, 10m, 2h."""
    return valued("--duration", "TIME", help, None, some_time)


def minimum_size() -> int:
    """Declare the field of --min for holes, 1 MiB by default."""
    about = "skip holes smaller than SIZE [default: 1M]"
    return valued("--min", "SIZE", about, MIB, parse_size)


def root_paths() -> bool:
    """Declare the field of --path, for a command that lists blocks."""
    about = "show the path from a root to each block (at most 2,000)"
    return switch("--path", about)


def process_of_log() -> int | None:
    """Declare the field of --process, for a command about a trace."""
    about = "choose the process of the trace [default: most calls]"
    return valued("--process", "PID", about, None, whole_number)


def recorded_calls() -> str | None:
    """Declare the field of --calls, for a command about blocks."""
    about = "show the stack that made the block, from a trace with --stacks"
    return valued("--calls", "FILE", about, None, os.path.expanduser)


def under_seccomp() -> bool:
    """Declare the field of --seccomp, for a command that calls into the process."""
    about = "call even under seccomp (it may kill the process)"
    return switch("--seccomp", about)
