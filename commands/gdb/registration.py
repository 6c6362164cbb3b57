"""The commands inside gdb. An error is printed as one line. A heap is cached until the process runs on.

gdbheap/loader/start.py defines the commands, and loads this module when the first of them is used."""

from __future__ import annotations

import atexit
import contextlib
import os
import re
import sys
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeVar

import gdb

from gdbheap.api.current import Stop, provide
from gdbheap.commands.gdb import convenience_functions, window
from gdbheap.commands.gdb.attachment import attach
from gdbheap.commands.gdb.command_line import completions, split
from gdbheap.commands.gdb.exit_status import Status
from gdbheap.commands.gdb.help import ATTACH, OFFERED, attach_help
from gdbheap.commands.gdb.inferior import CORE, LIVE, TargetIdentity, build, core_place, place, reread
from gdbheap.commands.gdb.output import charset, write
from gdbheap.commands.gdb.server_calls import ServerCalls
from gdbheap.commands.inferior_calls.inferior_call import CallPurpose, Calls
from gdbheap.commands.inferior_calls.local_calls import LocalCalls
from gdbheap.commands.inferior_calls.native_caller import Debugger
from gdbheap.commands.surface.declaration import ADDRESS, FILE, FUNCTION, GDB, OPTIONS, SHELL, AnyCommand
from gdbheap.commands.surface.heap_cache import HeapCache
from gdbheap.commands.surface.help import help_text, options_help
from gdbheap.commands.surface.nearest import did_you_mean
from gdbheap.commands.surface.needs import CALLED, FOLLOWED, LOOKS, PROCESS
from gdbheap.commands.surface.options import Addressed, Called, Common, Filed, MaybeAddressed
from gdbheap.commands.surface.parser import parse, wants_help
from gdbheap.commands.surface.progress import shown_for
from gdbheap.commands.surface.registry import COMMANDS, groups_of_gdb
from gdbheap.commands.surface.session import (
    Result,
    TargetInfo,
    ask,
    ask_about_looks,
    ask_about_process,
    disclosing,
    present,
    status_of,
)
from gdbheap.contents.python.text.disclosure import is_hidden, wanted
from gdbheap.dataclass import dataclass
from gdbheap.errors import GdbheapError, NoTarget, UsageError, one_line, own_line
from gdbheap.heap import Heap
from gdbheap.report.formats.json import error_document, text_of
from gdbheap.report.text.numbers import is_name
from gdbheap.report.text.style import GDB_PROMPT, Style, encodable, style_for
from gdbheap.targets.process import Process
from gdbheap.targets.target import Target
from gdbheap.text import as_typed, printable_record

if TYPE_CHECKING:
    from gdbheap.loader.start import Start

__all__ = ["CACHE", "StartTable", "register"]

INTERRUPTED = 1
JSON = "--json"
LONG_SECONDS = 1.0
# A setting of gdb. Its name is in gdb's error message if an expression would make a forbidden call.
MAY_CALL = "may-call-functions"
# Matches a line to paste in gdb. If another extension has the command 'heap', gdbheap's commands have another prefix.
MARKED = re.compile(rf"^( *{re.escape(GDB_PROMPT)}){GDB} ", re.MULTILINE)
# Matches the beginning of an error message that names its command.
NAMED = re.compile(rf"{GDB} (?=(?:{'|'.join(filter(None, OFFERED))})\b)")

STATUS = Status()
T = TypeVar("T")
CACHE = HeapCache()
# The first word of gdbheap's commands in this gdb.
_prefix = GDB


@contextlib.contextmanager
def _one_line(words: Sequence[str] = (), called: str = "") -> Iterator[None]:
    """Convert each error inside the block into a gdb.GdbError of one line, and note the exit status.

    ``words``: the command line, which may ask for a JSON document of the error; ``called``: the name of the command."""
    name = called if JSON in words else ""
    try:
        yield
    except GdbheapError as error:
        _fail(str(error), error.status, name, error.next)
    except KeyboardInterrupt:
        CACHE.drop()
        _fail("interrupted; nothing in the target was changed", INTERRUPTED, name)
    except gdb.GdbError:
        raise
    except Exception as error:
        if os.environ.get("GDBHEAP_DEBUG"):
            raise
        _fail(_fault(error, words), INTERRUPTED, name)


def _fault(error: Exception, words: Sequence[str]) -> str:
    """Return the message for an error of gdb, or for a fault of gdbheap.

    The text of a fault may contain data from the process's memory. This text is left out if contents are hidden."""
    if isinstance(error, gdb.error):
        return str(error)
    said = "" if is_hidden(words, os.environ) else f": {error}"
    return f"a fault of gdbheap ({type(error).__name__}), GDBHEAP_DEBUG=1 shows where{said}"


def _lines_as_typed(text: str, prefix: str) -> str:
    """Return ``text`` with ``prefix`` as the first word of each line to paste.

    Commands in sentences already have the prefix. Text from the target is never changed: the style escapes it where
    it would look like a line to paste."""
    return text if prefix == GDB else MARKED.sub(rf"\g<1>{prefix} ", text)


def _fail(message: str, status: int, name: str, steps: Sequence[str] = ()) -> None:
    """Raise gdb.GdbError with the message. ``name``: the name of the command, if the error must also be written as a
    JSON document with the next steps; "" otherwise."""
    STATUS.note(status)
    message = _typed_here(message)
    if name:
        _quiet_end(True)
        write(text_of(error_document(name, status, message, list(map(_typed_here, steps)))) + "\n")
    start = "" if message.startswith((GDB, SHELL)) else "gdbheap: "
    raise gdb.GdbError(encodable(start + own_line(message), charset())) from None


def _typed_here(message: str) -> str:
    """Return a message or a step with gdbheap's commands as they are typed in this gdb."""
    if _prefix == GDB:
        return message
    return as_typed(NAMED.sub(f"{_prefix} ", message, 1) if NAMED.match(message) else message, _prefix)


def _heap(where: TargetIdentity) -> Heap:
    return CACHE.heap(where.inferior, where, lambda: Heap(_target(where)))


def _target(where: TargetIdentity) -> Target:
    target = build(where)
    target.offered_in_gdb = frozenset(OFFERED)
    return target


def _stop() -> Stop:
    """Return gdb's target as it is now, for programs that use gdbheap's library in gdb's own Python. Raises
    GdbheapError if there is no process or core."""
    where = place()
    heap = _heap(where)
    return Stop(
        heap, f"core {where.core}" if where.kind == CORE else f"process {where.pid}", lambda: not CACHE.has(heap)
    )


def _place() -> TargetIdentity:
    try:
        where = place()
    except NoTarget:
        core = STATUS.refused_core()
        if core is None:
            raise STATUS.no_target() from None
        return core_place(core)
    STATUS.had_target = True
    return where


def _ask(command: AnyCommand, options: Common) -> Result:
    """Return a command's answer about the selected inferior."""
    return _looked(lambda where, heap: _computed(command, where, heap, options))


def _looked(compute: Callable[[TargetIdentity, Heap], T]) -> T:
    """Call ``compute`` with the selected inferior and its heap, and return the result.

    If ``compute`` is interrupted or fails, the heap is dropped, so that no later command uses a half-finished walk.
    """
    where = _place()
    heap = _heap(where)
    try:
        with shown_for(heap):
            answered = compute(where, heap)
    except BaseException:
        CACHE.drop(where.inferior)
        raise
    finally:
        if getattr(heap.target, "interrupted", False):
            CACHE.drop(where.inferior)
            raise KeyboardInterrupt
    return answered


def _compare(command: AnyCommand, options: Common, words: Sequence[str]) -> Result:
    """Compare snapshots with each other. A single snapshot is compared with the selected inferior."""
    from gdbheap.snapshots.file import read
    from gdbheap.snapshots.snapshot import take

    looks = [read(os.path.expanduser(word)) for word in words]
    if not looks:
        raise UsageError(f"{command.name}: which snapshot? {command.name} {command.needs.in_gdb}")
    if len(looks) == 1:
        heap = _heap(_place())
        heap.disclosure.contents = not options.no_text
        with shown_for(heap):
            looks.append(take(heap, with_blocks=looks[0].columns is not None))
    return ask_about_looks(command, looks, options)


def _follow(command: AnyCommand, options: Common) -> Result:
    """Return the answer of a command that observes the selected inferior while gdb lets it run."""
    from gdbheap.commands.gdb.follower import GdbProcess

    where = _place()
    if where.kind != LIVE:
        raise UsageError(f"{command.name}: only a live process on this machine can be followed")
    CACHE.drop(where.inferior)
    process = GdbProcess(where)
    return ask_about_process(command, process, options)


def _computed(command: AnyCommand, where: TargetIdentity, heap: Heap, options: Common) -> Result:
    """Return a command's answer. If the command calls a function in the process, the call is made first."""
    call = command.call_for(options)
    if where.kind == CORE and call is not None:
        raise UsageError(f"{command.name}: {call.on_core}")
    if where.kind == CORE and command.needs is PROCESS:
        raise UsageError(f"{command.name}: this command calls a function in a live process, but this is a core")
    if call is None:
        return ask(command, heap, options)
    with _calls(where, heap, call.purpose) as calls:
        return ask(command, heap, options, calls)


@contextlib.contextmanager
def _calls(where: TargetIdentity, heap: Heap, purpose: CallPurpose) -> Iterator[Calls]:
    """Yield an object that can call functions in the process. Afterwards the cached heap is dropped, because a call may
    change the heap."""
    if where.kind != LIVE:
        yield ServerCalls(where)
        return
    assert isinstance(heap.target, Process)
    with _registers_reread(purpose):
        try:
            yield LocalCalls(heap.target, Debugger())
        finally:
            CACHE.drop(where.inferior)


@contextlib.contextmanager
def _registers_reread(purpose: CallPurpose) -> Iterator[None]:
    """Allow gdbheap to call functions of the process itself inside the ``with`` block, and then let gdb reread the
    registers.

    Each call restores all registers. The calls are made on gdb's own thread. Raises GdbheapError if gdb keeps
    breakpoints inserted.
    """
    if gdb.parameter("breakpoint always-inserted") is True:
        raise purpose.error("gdb keeps breakpoints inserted, and the call might reach one")
    try:
        yield
    finally:
        reread()


def _address(text: str) -> int:
    """Return the address to which an expression of gdb evaluates; for a function or an array, its own address.

    The expression must not call a function in the process.
    """
    with _without_calls():
        return convenience_functions.address_of(gdb.parse_and_eval(text), text)


@contextlib.contextmanager
def _without_calls() -> Iterator[None]:
    """Forbid calls into the process inside the block. Otherwise gdb would even copy a string of an expression into the
    process by calling its malloc()."""
    may_call = bool(gdb.parameter(MAY_CALL))
    gdb.execute(f"set {MAY_CALL} off", to_string=True)
    try:
        yield
    finally:
        if may_call:
            gdb.execute(f"set {MAY_CALL} on", to_string=True)


def _style(options: Common, info: TargetInfo) -> Style:
    """Return the style for text output, with the width of gdb's screen. If gdb runs a batch, or its output is captured
    or piped, gdb's width is "unlimited".
    """
    width = gdb.parameter("width")
    stream = sys.__stdout__ if width or STATUS.invocation.batch else None
    whole = style_for(stream, options.exact, info.rss, info.private, charset(), _prefix)
    columns = width if width and whole.width is not None else whole.width
    assert columns is None or isinstance(columns, int)
    return whole.of_width(columns, bold=whole.bold and bool(gdb.parameter("style enabled")))


class _Words:
    """A gdb command that gets its line as words. It prints its help if the words ask for it."""

    noun = ""

    def __init__(self) -> None:
        self.called = GDB

    def invoke(self, prefix: str, line: str) -> None:
        """Run the command.

        ``line``: the text that was typed after ``prefix`` and the command's name. Raises gdb.GdbError with a message
        of one line.
        """
        self.called = f"{prefix} {self.noun}".strip()
        with _one_line(line.split(), f"{GDB} {self.noun}".strip()):
            words = split(line)
            if wants_help(words):
                write(f"{self.help}\n")
            else:
                self.run(words)

    @property
    def help(self) -> str:
        """The command's help text. A subclass defines it."""
        raise NotImplementedError

    def run(self, words: list[str]) -> None:
        """Run the command with these words. A subclass defines it."""
        raise NotImplementedError

    def complete(self, text: str, word: str) -> list[str]:
        """Return the possible completions of a word. A subclass may return some; by default there are none."""
        return []


class HeapCommand(_Words):
    """A gdb command that is made from a ``Command``, its declaration."""

    def __init__(self, command: AnyCommand) -> None:
        super().__init__()
        self.command, self.noun = command, command.noun

    @property
    def help(self) -> str:
        return help_text(self.command, self.called, groups={} if self.noun else groups_of_gdb())

    def run(self, words: list[str]) -> None:
        """Compute the answer, print it, and note the exit status."""
        options, left = self._options(words)
        began = time.monotonic()
        answered = self._answered(options, left)
        seconds = 0.0 if self.command.needs in (FOLLOWED, CALLED) else time.monotonic() - began
        _quiet_end(options.json)
        text = present(answered, _style(options, answered.info))
        write((text if options.json else _lines_as_typed(text, _prefix)) + "\n")
        live = answered.info.target.get("kind") == "process"
        if seconds > LONG_SECONDS and live and not options.json:
            write(stood_still(self.command, answered.info.target.get("pid"), seconds), gdb.STDERR)
        STATUS.note(status_of(answered))

    def _answered(self, options: Common, left: list[str]) -> Result:
        needs = self.command.needs
        if needs is LOOKS:
            return _compare(self.command, options, left)
        return _follow(self.command, options) if needs in (FOLLOWED, CALLED) else _ask(self.command, options)

    def _options(self, words: list[str]) -> tuple[Common, list[str]]:
        """Return the options, and the words that are neither options nor their values."""
        options: Common
        options, _, left = parse(self.command, words, self.called)
        if isinstance(options, Addressed) or (isinstance(options, MaybeAddressed) and left):
            self._take_address(options, left)
        elif isinstance(options, Filed):
            options.file = self._file(left)
        elif isinstance(options, Called):
            options.function = self._function(left)
        elif left and self.command.needs is not LOOKS:
            meant = "" if self.command.noun else f"{did_you_mean(left[0], OFFERED)} ('help heap' lists all commands)"
            raise UsageError(f"{self.called}: unrecognized arguments: {' '.join(left)}{meant}")
        options.check()
        return options, left

    def _file(self, words: list[str]) -> str:
        if len(words) != 1:
            raise UsageError(f"{self.called}: which file? {self.called} {FILE.metavar}")
        return os.path.expanduser(words[0])

    def _function(self, words: list[str]) -> str:
        if len(words) != 1:
            raise UsageError(f"{self.called}: which function? {self.called} {FUNCTION.metavar}")
        return words[0]

    def _take_address(self, options: Addressed | MaybeAddressed, words: list[str]) -> None:
        """Set the command's argument: an address, from an expression of gdb, or else the name of a holder. Raises
        UsageError."""
        if not words:
            raise UsageError(f"{self.called}: which address? {self.called} {ADDRESS.metavar}")
        _place()
        text = " ".join(words)
        try:
            options.address = _address(text)
        except gdb.error as error:
            if MAY_CALL in str(error):
                why = "would call a function of the program: give an address without a call"
                raise UsageError(f"{text} {why}") from None
            if not is_name(text):
                raise UsageError(f"{text} is not an address: {error}") from None
            options.name = text

    def complete(self, text: str, word: str) -> list[str]:
        return completions(self.command, text, word)


def stood_still(command: AnyCommand, pid: object, seconds: float) -> str:
    """Return the warning that a live process was stopped for long during an answer. Inside gdb, a process stays stopped
    until gdb releases it."""
    until = "and stays stopped until gdb releases it"
    return (
        f"gdbheap: process {pid} was stopped for the {seconds:.1f} s of this answer, {until};"
        f" '{command.shell_name} {pid}' in a shell stops it only while its memory is copied.\n"
    )


def _evaluated(answer: Callable[[Heap], int | str]) -> int | str:
    """Return the value of a convenience function. Raises gdb.GdbError with a message of one line."""
    with _one_line():
        return _looked(lambda where, heap: _told(answer, heap))
    raise AssertionError("an error is raised on")


def _told(answer: Callable[[Heap], int | str], heap: Heap) -> int | str:
    """Return an answer as the value of a convenience function in an expression of gdb.

    An expression has no options, so the environment decides whether contents of memory are shown. The answer is made
    printable, because gdb's printf and echo print strings unchanged."""
    with disclosing([heap], wanted(os.environ)):
        return printable_record(answer(heap))


# The texts of each heap's ledger, by width. The window asks for one at each prompt and whenever it is scrolled.
_ledgers: weakref.WeakKeyDictionary[Heap, dict[int, str]] = weakref.WeakKeyDictionary()


def _ledger(width: int) -> str:
    """Return the text of the command ``heap`` for a screen of ``width`` columns, or the reason why there is none."""
    try:
        texts = _ledgers.setdefault(_heap(_place()), {})
        if width not in texts:
            texts[width] = _ledger_text(width)
        return texts[width]
    except GdbheapError as error:
        return one_line(error)


def _ledger_text(width: int) -> str:
    command = COMMANDS[""]
    options, _, _ = parse(command, [], command.name)
    answered = _ask(command, options)
    return _lines_as_typed(present(answered, _style(options, answered.info).of_width(width, bold=False)), _prefix)


def _quiet_end(json: bool) -> None:
    """Suppress the last line of gdb in a batch ("[Inferior 1 (process 1234) detached]"), because it would follow a JSON
    document."""
    if json and STATUS.invocation.batch:
        with contextlib.suppress(gdb.error):
            gdb.execute("set print inferior-events off", to_string=True)


class OptionsCommand(_Words):
    """The command ``heap options``, which prints the same text as ``help heap options``."""

    noun = OPTIONS

    @property
    def help(self) -> str:
        return options_help(self.called.split()[0])

    def run(self, words: list[str]) -> None:
        write(f"{self.help}\n")


class AttachCommand(_Words):
    """The command ``heap attach PID``, which attaches gdb to a process."""

    noun = ATTACH

    @property
    def help(self) -> str:
        return attach_help(self.called.split()[0])

    def run(self, words: list[str]) -> None:
        if len(words) != 1 or not words[0].isdecimal():
            raise UsageError(f"{self.called}: which process? {self.called} PID")
        attach(int(words[0]))
        STATUS.had_target = True


def _drop(event: object) -> None:
    CACHE.drop()


def _note_target(event: object) -> None:
    STATUS.had_target = True


def _watch() -> None:
    """Connect gdb's events to functions. The cached heaps are dropped when the target runs or is gone, when its memory
    is written, or when a function is called in it. A new thread shows that gdb has had a target. Older gdbs lack some
    of these events."""
    for name in (
        "cont",
        "memory_changed",
        "register_changed",
        "inferior_call",
        "exited",
        "clear_objfiles",
        "inferior_deleted",
    ):
        registry = getattr(gdb.events, name, None)
        if registry is not None:
            registry.connect(_drop)
    if hasattr(gdb.events, "new_thread"):
        gdb.events.new_thread.connect(_note_target)


@dataclass(frozen=True)
class StartTable:
    """The commands and functions that start.py defines, by name, and the function that makes the window."""

    commands: dict[str, HeapCommand | AttachCommand | OptionsCommand]
    functions: dict[str, Callable[[Sequence[gdb.Value]], int | gdb.Value]]
    window: Callable[[gdb.TuiWindow], window.LedgerWindow]


def register(start: Start) -> StartTable:
    """Return the table of commands and functions. Also begin to follow gdb's events, and make a batch end with
    gdbheap's exit status."""
    global _prefix
    _prefix = start.prefixes[0]
    STATUS.had_target = start.had_target or bool(gdb.selected_inferior().threads())
    _watch()
    provide(_stop)
    atexit.register(STATUS.finish)
    return StartTable(
        {
            **{noun: HeapCommand(command) for noun, command in OFFERED.items()},
            AttachCommand.noun: AttachCommand(),
            OptionsCommand.noun: OptionsCommand(),
        },
        convenience_functions.defined(_evaluated),
        lambda shown: window.LedgerWindow(shown, _ledger),
    )
