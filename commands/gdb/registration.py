"""The commands of gdb: each error is one line, and a heap is kept for one stop.

gdbheap/loader/start.py has defined them, and loads this when the first of them is used."""

from __future__ import annotations

import atexit
import contextlib
import os
import re
import sys
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import gdb

from gdbheap.api.current import Stop, provide
from gdbheap.commands.gdb import functions, window
from gdbheap.commands.gdb.attachment import attach
from gdbheap.commands.gdb.command_line import completions, split
from gdbheap.commands.gdb.exit_status import Status
from gdbheap.commands.gdb.help import ATTACH, OFFERED, attach_help
from gdbheap.commands.gdb.inferior import CORE, LIVE, Place, build, core_place, place, reread
from gdbheap.commands.gdb.output import charset, write
from gdbheap.commands.gdb.server_calls import ServerCalls
from gdbheap.commands.inferior_calls.inferior_call import Calls, Purpose
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
from gdbheap.errors import GdbheapError, NoTarget, UsageError, one_line
from gdbheap.heap import Heap
from gdbheap.report.formats.json import error_document, text_of
from gdbheap.report.text.numbers import is_name
from gdbheap.report.text.style import GDB_PROMPT, Style, encodable, style_for
from gdbheap.targets.process import Process
from gdbheap.targets.target import Target
from gdbheap.text import as_typed, printable_record

if TYPE_CHECKING:
    from gdbheap.loader.start import Start

__all__ = ["CACHE", "Table", "register"]

INTERRUPTED = 1
JSON = "--json"
LONG_SECONDS = 1.0
# A setting of gdb's, whose name is in what gdb says of a call that it forbids.
MAY_CALL = "may-call-functions"
# Lines of an answer that are to be pasted; where another extension owns 'heap', ours is typed in another way.
MARKED = re.compile(rf"^( *{re.escape(GDB_PROMPT)}){GDB} ", re.MULTILINE)
# The beginning of an error that names its command.
NAMED = re.compile(rf"{GDB} (?=(?:{'|'.join(filter(None, OFFERED))})\b)")

STATUS = Status()
T = TypeVar("T")
CACHE = HeapCache()
# What commands begin with here.
_prefix = GDB


@contextlib.contextmanager
def _one_line(words: Sequence[str] = (), called: str = "") -> Iterator[None]:
    """Every error of the block becomes gdb's own kind, with one line, and its exit status is noted. ``words``: the
    command line, which may ask for a document of it; ``called``: what it calls."""
    name = called if JSON in words else ""
    try:
        yield
    except GdbheapError as error:
        _fail(str(error), error.status, name)
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
    """An error of gdb's, or one that should not be: its text may have come from memory."""
    if isinstance(error, gdb.error):
        return str(error)
    said = "" if is_hidden(words, os.environ) else f": {error}"
    return f"a fault of gdbheap ({type(error).__name__}), GDBHEAP_DEBUG=1 shows where{said}"


def _lines_as_typed(text: str, prefix: str) -> str:
    """Return an answer with the commands on lines of their own as they are typed; its style has done what sentences
    quote. Names of a target cannot begin a line."""
    return text if prefix == GDB else MARKED.sub(rf"\g<1>{prefix} ", text)


def _fail(message: str, status: int, name: str) -> None:
    """Raise gdb.GdbError. ``name``: that of the command whose document says the same, "" where none was asked for."""
    STATUS.note(status)
    if _prefix != GDB:
        message = as_typed(NAMED.sub(f"{_prefix} ", message, 1) if NAMED.match(message) else message, _prefix)
    if name:
        _quiet_end(True)
        write(text_of(error_document(name, status, message)) + "\n")
    start = "" if message.startswith((GDB, SHELL)) else "gdbheap: "
    raise gdb.GdbError(encodable(start + one_line(message), charset())) from None


def _heap(where: Place) -> Heap:
    return CACHE.heap(where.inferior, where, lambda: Heap(_target(where)))


def _target(where: Place) -> Target:
    target = build(where)
    target.offered_in_gdb = frozenset(OFFERED)
    return target


def _stop() -> Stop:
    """Return the stop that the library reads in gdb's own Python. Raises GdbheapError without a process."""
    where = place()
    heap = _heap(where)
    return Stop(
        heap, f"core {where.core}" if where.kind == CORE else f"process {where.pid}", lambda: not CACHE.has(heap)
    )


def _place() -> Place:
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
    """The answer about the selected inferior."""
    return _looked(lambda where, heap: _computed(command, where, heap, options))


def _looked(compute: Callable[[Place, Heap], T]) -> T:
    """What is computed from the selected inferior's heap. A walk that was cut short leaves nothing for a later one to
    build on."""
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
    """Snapshots with each other; one alone with the selected inferior."""
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
    """What the selected inferior does while gdb lets it run."""
    from gdbheap.commands.gdb.follower import GdbProcess

    where = _place()
    if where.kind != LIVE:
        raise UsageError(f"{command.name}: only a live process on this machine can be followed, and this is none")
    CACHE.drop(where.inferior)
    process = GdbProcess(where)
    return ask_about_process(command, process, options)


def _computed(command: AnyCommand, where: Place, heap: Heap, options: Common) -> Result:
    """The answer; of a command that calls into the process, after the call."""
    call = command.call_for(options)
    if where.kind == CORE and call is not None:
        raise UsageError(f"{command.name}: {call.on_core}")
    if where.kind == CORE and command.needs is PROCESS:
        raise UsageError(f"{command.name}: this is a core, and only a live process can be asked itself")
    if call is None:
        return ask(command, heap, options)
    with _calls(where, heap, call.purpose) as calls:
        return ask(command, heap, options, calls)


@contextlib.contextmanager
def _calls(where: Place, heap: Heap, purpose: Purpose) -> Iterator[Calls]:
    """How functions of the process are called in this block, after which nothing is kept that a call may change."""
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
def _registers_reread(purpose: Purpose) -> Iterator[None]:
    """Inside the block calls are made by ourselves, on gdb's thread. gdb's registers stay right: all are put back."""
    if gdb.parameter("breakpoint always-inserted") is True:
        raise purpose.error("breakpoints are always inserted here, and the call might meet one")
    try:
        yield
    finally:
        reread()


def _address(text: str) -> int:
    """Any expression of gdb that calls nothing in the process; what is no number (a function, an array) stands for its
    address."""
    with _without_calls():
        return functions.address_of(gdb.parse_and_eval(text), text)


@contextlib.contextmanager
def _without_calls() -> Iterator[None]:
    """A text in an expression would be put into the process by a call of its malloc(), too."""
    may_call = bool(gdb.parameter(MAY_CALL))
    gdb.execute(f"set {MAY_CALL} off", to_string=True)
    try:
        yield
    finally:
        if may_call:
            gdb.execute(f"set {MAY_CALL} on", to_string=True)


def _style(options: Common, info: TargetInfo) -> Style:
    """As wide as gdb's own screen. gdb says "unlimited" in a batch and while its output is captured or piped."""
    width = gdb.parameter("width")
    stream = sys.__stdout__ if width or STATUS.invocation.batch else None
    whole = style_for(stream, options.exact, info.rss, info.private, charset(), _prefix)
    columns = width if width and whole.width is not None else whole.width
    assert columns is None or isinstance(columns, int)
    return whole.of_width(columns, bold=whole.bold and bool(gdb.parameter("style enabled")))


class _Words:
    """A command of gdb whose line is words; asked for help it prints its own."""

    noun = ""

    def __init__(self) -> None:
        self.called = GDB

    def invoke(self, prefix: str, line: str) -> None:
        """Do what the line says, typed after ``prefix`` and the noun. Raises gdb.GdbError with one line."""
        self.called = f"{prefix} {self.noun}".strip()
        with _one_line(line.split(), f"{GDB} {self.noun}".strip()):
            words = split(line)
            if wants_help(words):
                write(f"{self.help}\n")
            else:
                self.run(words)

    @property
    def help(self) -> str:
        """Return the help text; a subclass defines it."""
        raise NotImplementedError

    def run(self, words: list[str]) -> None:
        """What the command does; a subclass says."""
        raise NotImplementedError

    def complete(self, text: str, word: str) -> list[str]:
        """Return the words that could follow: none."""
        return []


class HeapCommand(_Words):
    """One command of gdb, made from its declaration."""

    def __init__(self, command: AnyCommand) -> None:
        super().__init__()
        self.command, self.noun = command, command.noun

    @property
    def help(self) -> str:
        """The declaration's."""
        return help_text(self.command, self.called, groups={} if self.noun else groups_of_gdb())

    def run(self, words: list[str]) -> None:
        """Answer, print, and remember the exit status."""
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
        """The options, and the words that are neither options nor their argument."""
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
        """Take any expression of gdb, or the name of a holder."""
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
                raise UsageError(f"{text} is no address: {error}") from None
            options.name = text

    def complete(self, text: str, word: str) -> list[str]:
        """Options, and the values of --sort."""
        return completions(self.command, text, word)


def stood_still(command: AnyCommand, pid: object, seconds: float) -> str:
    """The line on standard error where a live process stood for long: in gdb it does so for as long as gdb."""
    until = "and stands still until gdb releases it"
    return (
        f"gdbheap: process {pid} stood still for the {seconds:.1f} s of this answer, {until};"
        f" '{command.shell_name} {pid}' in a shell stops it only while it reads.\n"
    )


def _evaluated(answer: Callable[[Heap], int | str]) -> int | str:
    """The value of a convenience function. Raises gdb.GdbError with one line."""
    with _one_line():
        return _looked(lambda where, heap: _told(answer, heap))
    raise AssertionError("an error is raised on")


def _told(answer: Callable[[Heap], int | str], heap: Heap) -> int | str:
    """An expression has no options: it shows what the environment allows, whatever the command before it showed. gdb's
    printf and echo write a text as it is."""
    with disclosing([heap], wanted(os.environ)):
        return printable_record(answer(heap))


# The texts of a heap's ledger, by their width: the window is drawn at every prompt, and for every line it is moved.
_ledgers: weakref.WeakKeyDictionary[Heap, dict[int, str]] = weakref.WeakKeyDictionary()


def _ledger(width: int) -> str:
    """The text of ``heap``, or why there is none."""
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
    """gdb's last line in a batch ("[Inferior 1 (process 1234) detached]") would follow the JSON document."""
    if json and STATUS.invocation.batch:
        with contextlib.suppress(gdb.error):
            gdb.execute("set print inferior-events off", to_string=True)


class OptionsCommand(_Words):
    """``heap options``: what ``help heap options`` says."""

    noun = OPTIONS

    @property
    def help(self) -> str:
        """Return what the options of every command do."""
        return options_help(self.called.split()[0])

    def run(self, words: list[str]) -> None:
        """Print the help."""
        write(f"{self.help}\n")


class AttachCommand(_Words):
    """``heap attach PID``."""

    noun = ATTACH

    @property
    def help(self) -> str:
        """Return the help of ``heap attach``."""
        return attach_help(self.called.split()[0])

    def run(self, words: list[str]) -> None:
        """Attach."""
        if len(words) != 1 or not words[0].isdecimal():
            raise UsageError(f"{self.called}: which process? {self.called} PID")
        attach(int(words[0]))
        STATUS.had_target = True


def _drop(event: object) -> None:
    CACHE.drop()


def _note_target(event: object) -> None:
    STATUS.had_target = True


def _watch() -> None:
    """Drop what was kept when the target runs, is written to, is called into, or goes. Older gdbs lack some events."""
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
class Table:
    """The commands, functions and window behind those that start.py defines, by noun and by name."""

    commands: dict[str, HeapCommand | AttachCommand | OptionsCommand]
    functions: dict[str, Callable[[Sequence[gdb.Value]], int | gdb.Value]]
    window: Callable[[gdb.TuiWindow], window.LedgerWindow]


def register(start: Start) -> Table:
    """The table; from now on events of gdb are followed, and a batch ends with our exit status."""
    global _prefix
    _prefix = start.prefixes[0]
    STATUS.had_target = start.had_target or bool(gdb.selected_inferior().threads())
    _watch()
    provide(_stop)
    atexit.register(STATUS.finish)
    return Table(
        {
            **{noun: HeapCommand(command) for noun, command in OFFERED.items()},
            AttachCommand.noun: AttachCommand(),
            OptionsCommand.noun: OptionsCommand(),
        },
        functions.defined(_evaluated),
        lambda shown: window.LedgerWindow(shown, _ledger),
    )
