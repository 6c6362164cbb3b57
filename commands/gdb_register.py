"""The command ``heap`` in gdb: registration, one line for every error, exit statuses, and what is kept for one stop.
One of the two modules that import gdb."""

from __future__ import annotations

import atexit
import contextlib
import dataclasses
import errno
import locale
import os
import select
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any

import gdb

from gdbheap.answers.arenas import arenas
from gdbheap.answers.stats import Stats, compare
from gdbheap.answers.trim import Trim, compared, trim
from gdbheap.commands.answering import About, Told, ask, disclosing, present, status_of, told
from gdbheap.commands.called import native_stats, native_trim, refuse_damaged
from gdbheap.commands.calling import STATS, TRIM, Libc, Purpose, errno_kept, find_libc, prove_safe
from gdbheap.commands.capturing import malloc_stats, prove_stream
from gdbheap.commands.declaration import Command, Options, help_text, parse, wants_help
from gdbheap.commands.gdb_target import (
    CORE,
    LIVE,
    GdbCaller,
    Place,
    attach,
    build,
    core_place,
    place,
    selection_kept,
)
from gdbheap.commands.gdb_words import completions, own_session, split
from gdbheap.commands.keeping import Keeper
from gdbheap.commands.native_calls import Debugger
from gdbheap.commands.nouns import COMMANDS
from gdbheap.commands.progress import shown_for
from gdbheap.commands.trim import NOT_LIVE, wants_call
from gdbheap.errors import GdbheapError, NoTarget, UsageError, one_line
from gdbheap.heap import Heap
from gdbheap.objects.disclosure import is_hidden
from gdbheap.report.style import Style, encodable, style_for
from gdbheap.target import refusal
from gdbheap.target.core import Core

__all__ = ["KEEPER", "register"]

HEAP, OTHER_NAME = "heap", "gdbheap"
INTERRUPTED = UNWRITTEN = 1
LONG_SECONDS = 1.0
ATTACH_HELP = """Attach to a process with its symbols read before it is stopped.

Usage: {prefix} attach PID

gdb reads symbols while the process stands still; of a Python that is most of the stop. This reads those of the
program, of libpython and of libc first, and then attaches: the process stands still for a third of the time.

Example:
  {prefix} attach 1234"""


class Status:
    """The exit status of a batch: the worst that a command of ours ended with. gdb alone would exit 0 or 1."""

    def __init__(self) -> None:
        self.worst = 0
        self.had_target = False
        self.session = own_session()

    def note(self, status: int) -> None:
        """A command ended with ``status``."""
        self.worst = max(self.worst, status)

    def no_target(self) -> GdbheapError:
        """Why there is nothing to look at: what gdb was started with could not be had, or it was given nothing."""
        pid, core = self.session.pid, self.session.core
        if not self.had_target and pid is not None:
            return refusal.explain(pid, PermissionError(errno.EPERM, os.strerror(errno.EPERM)))
        if not self.had_target and core is not None:
            try:
                Core(core)
            except GdbheapError as error:
                return error
        return NoTarget("there is no process and no core here: attach PID, or core-file FILE")

    def refused_core(self) -> str | None:
        """The core that gdb was started with and does not take, although it is one: gdb needs its very end."""
        core = None if self.had_target else self.session.core
        if core is not None:
            with contextlib.suppress(GdbheapError):
                Core(core)
                return os.path.abspath(core)
        return None

    def _came_to_nothing(self) -> bool:
        """Whether what gdb was to look at could not be had, and no command has said so."""
        wanted = self.session.asked and (self.session.pid is not None or self.session.core is not None)
        return wanted and not self.had_target and not self.worst and self.refused_core() is None

    def finish(self) -> None:
        """At gdb's end, after it has detached. Only a batch has an exit status that somebody looks at."""
        if not self.session.batch:
            return
        if self._came_to_nothing():
            error = self.no_target()
            self.note(error.status)
            _write(f"gdbheap: {error}\n", gdb.STDERR)
        gdb.flush(gdb.STDOUT)
        if _output_failed():
            self.note(UNWRITTEN)
            _write("gdbheap: the report could not be written: standard output is full or closed\n", gdb.STDERR)
        gdb.flush(gdb.STDERR)
        if self.worst:
            os._exit(self.worst)


def _output_failed() -> bool:
    """Whether a write to the C stream behind gdb's standard output failed, which gdb ignores. False if nobody knows."""
    try:
        import ctypes

        library = ctypes.CDLL(None)
        failed = bool(library.ferror(ctypes.c_void_p.in_dll(library, "stdout")))
        return failed and not _pipe_is_closed()
    except (ImportError, OSError, ValueError, AttributeError):
        return False


def _pipe_is_closed() -> bool:
    """Whether standard output is a pipe that nobody reads any more (``| head``): that is no failure."""
    poll = select.poll()
    poll.register(1, 0)
    return any(state & select.POLLERR for _, state in poll.poll(0))


STATUS = Status()
KEEPER = Keeper()


def _write(text: str, stream: int = gdb.STDOUT) -> None:
    gdb.write(encodable(text, _charset()), stream)


def _charset() -> str:
    """What gdb turns our text into. gdb.host_charset() is in gdb 12 and later."""
    known = getattr(gdb, "host_charset", None)
    return known() if known else locale.getpreferredencoding(False)


@contextlib.contextmanager
def _one_line(words: Sequence[str] = ()) -> Iterator[None]:
    """Every error of the block becomes gdb's own kind, with one line, and its exit status is noted. ``words``: the
    command line."""
    try:
        yield
    except GdbheapError as error:
        _fail(str(error), error.status)
    except KeyboardInterrupt:
        KEEPER.drop()
        _fail("interrupted; nothing in the target was changed", INTERRUPTED)
    except gdb.GdbError:
        raise
    except Exception as error:
        if os.environ.get("GDBHEAP_DEBUG"):
            raise
        _fail(_fault(error, words), INTERRUPTED)


def _fault(error: Exception, words: Sequence[str]) -> str:
    """An error of gdb's, or one that should not be: its text may have come from memory."""
    if isinstance(error, gdb.error):
        return str(error)
    said = "" if is_hidden(words, os.environ) else f": {error}"
    return f"a fault of gdbheap ({type(error).__name__}), GDBHEAP_DEBUG=1 shows where{said}"


def _fail(message: str, status: int) -> None:
    STATUS.note(status)
    start = "" if message.startswith((HEAP, OTHER_NAME)) else "gdbheap: "
    raise gdb.GdbError(encodable(start + one_line(message), _charset())) from None


def _heap(where: Place) -> Heap:
    return KEEPER.heap(where.inferior, where, lambda: Heap(build(where)))


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


def _ask(command: Command[Any], options: Options) -> Told:
    """The answer about the selected inferior. A walk that was cut short leaves nothing for a later one to build on."""
    where = _place()
    heap = _heap(where)
    try:
        with shown_for(heap):
            answered = _computed(command, where, heap, options)
    except BaseException:
        KEEPER.drop(where.inferior)
        raise
    finally:
        if getattr(heap.target, "interrupted", False):
            KEEPER.drop(where.inferior)
            raise KeyboardInterrupt
    return answered


def _computed(command: Command[Any], where: Place, heap: Heap, options: Options) -> Told:
    """The answer; of a command that calls into the process, after the call."""
    call = _stats if command.noun == "stats" else _trim if command.noun == "trim" and wants_call(options) else None
    if call is None:
        return ask(command, heap, options)
    with disclosing(heap, options):
        return told(command, options, call(where, heap, options), heap)


def _stats(where: Place, heap: Heap, options: Options) -> Stats:
    if where.kind == CORE:
        raise UsageError("heap stats: a core cannot be asked: 'heap arenas' gives the same figures without asking")
    if where.kind == LIVE:
        with _native_calls(where, STATS):
            return native_stats(heap, Debugger(), options)
    ours = arenas(heap)
    with _safe(where, heap, options, STATS) as (libc, caller):
        prove_stream(libc, caller)
        text = malloc_stats(libc, caller)
    return compare(ours, text)


def _trim(where: Place, heap: Heap, options: Options) -> Trim:
    if where.kind == CORE:
        raise UsageError(f"heap trim: {NOT_LIVE}")
    if where.kind == LIVE:
        with _native_calls(where, TRIM):
            return native_trim(heap, Debugger(), options)
    asked = trim(heap, options.pad)
    refuse_damaged(heap)
    with _safe(where, heap, options, TRIM) as (libc, caller), errno_kept(libc, caller):
        released = caller.call(libc.address(TRIM.function), options.pad) & 0xFFFFFFFF != 0
    return compared(asked, heap, build(where), released)


@contextlib.contextmanager
def _native_calls(where: Place, purpose: Purpose) -> Iterator[None]:
    """Inside the block calls are made by ourselves, on gdb's thread. gdb's registers stay right: all are put back."""
    if gdb.parameter("breakpoint always-inserted") is True:
        raise purpose.error("breakpoints are always inserted here, and the call might meet one")
    try:
        yield
    finally:
        KEEPER.drop(where.inferior)
        with selection_kept():
            for line in ("maintenance flush register-cache", "maintenance flush dcache"):
                with contextlib.suppress(gdb.error):  # gdb 12 and later
                    gdb.execute(line, to_string=True)


@contextlib.contextmanager
def _safe(where: Place, heap: Heap, options: Options, purpose: Purpose) -> Iterator[tuple[Libc, GdbCaller]]:
    """Inside the block gdb can call the function in a server's process without hanging or doing harm."""
    libc = find_libc(heap.target, purpose)
    caller = GdbCaller(where, heap.target, purpose)
    caller.check(libc.loaded, options.seccomp)
    with caller.ready():
        prove_safe(libc, [arena.address for arena in heap.glibc.arenas], caller)
        yield libc, caller


def _address(text: str) -> int:
    """Any expression of gdb; what is no number (a function, an array) stands for its address."""
    try:
        value = gdb.parse_and_eval(text)
        code = value.type.strip_typedefs().code
        if code in (
            gdb.TYPE_CODE_FUNC,
            gdb.TYPE_CODE_METHOD,
            gdb.TYPE_CODE_ARRAY,
            gdb.TYPE_CODE_STRUCT,
            gdb.TYPE_CODE_UNION,
        ):
            value = value.address or value
        return int(value) & ((1 << 64) - 1)
    except (gdb.error, TypeError, ValueError, OverflowError) as error:
        raise UsageError(f"{text} is no address: {error}") from None


def _style(options: Options, about: About) -> Style:
    """As wide as gdb's own screen. gdb says "unlimited" in a batch and while its output is captured or piped."""
    width = gdb.parameter("width")
    stream = sys.__stdout__ if width or STATUS.session.batch else None
    whole = style_for(stream, options.exact, about.rss, about.private, _charset())
    if not width or whole.width is None:
        return whole
    assert isinstance(width, int)
    return dataclasses.replace(whole, width=width, bold=whole.bold and bool(gdb.parameter("style enabled")))


class _Words(gdb.Command):
    """A command of gdb whose line is words; asked for help it prints its own."""

    def invoke(self, line: str, from_tty: bool) -> None:
        """Do what the line says. Raises gdb.GdbError with one line."""
        with _one_line(line.split()):
            words = split(line)
            if wants_help(words):
                _write(f"{self.__doc__}\n")
            else:
                self.run(words)

    def run(self, words: list[str]) -> None:
        """What the command does; a subclass says."""
        raise NotImplementedError


class HeapCommand(_Words):
    """One command of gdb, made from its declaration."""

    def __init__(self, command: Command[Any], prefix: str) -> None:
        self.command = command
        self.called = f"{prefix} {command.noun}".strip()
        self.__doc__ = help_text(command, self.called)
        super().__init__(self.called, gdb.COMMAND_DATA, prefix=not command.noun)

    def run(self, words: list[str]) -> None:
        """Answer, print, and remember the exit status."""
        options = self._options(words)
        began = time.monotonic()
        answered = _ask(self.command, options)
        seconds = time.monotonic() - began
        _quiet_end(options)
        _write(present(answered, _style(options, answered.about)) + "\n")
        live = answered.about.target.get("kind") == "process"
        if seconds > LONG_SECONDS and live and not options.json:
            _write(stood_still(self.command, answered.about.target.get("pid"), seconds), gdb.STDERR)
        STATUS.note(status_of(answered))

    def _options(self, words: list[str]) -> Options:
        options, _, left = parse(self.command, words, self.called)
        if self.command.argument is None and left:
            known = "" if self.command.noun else f" (the nouns are {', '.join(noun for noun in COMMANDS if noun)})"
            raise UsageError(f"{self.called}: unrecognized arguments: {' '.join(left)}{known}")
        if self.command.argument is not None:
            if not left:
                raise UsageError(f"{self.called}: which address? {self.called} {self.command.argument.metavar}")
            _place()
            options.address = _address(" ".join(left))
        return options

    def complete(self, text: str, word: str | None) -> list[str]:
        """Options, and the values of --sort. Without ``word`` gdb only asks where words end, and ignores the answer."""
        return [] if word is None else completions(self.command, text, word)


def stood_still(command: Command[Any], pid: object, seconds: float) -> str:
    """The line on standard error where a live process stood for long: in gdb it does so for as long as gdb."""
    instead = f"gdbheap {command.noun}".strip()
    until = "and stands still until gdb releases it"
    return (
        f"gdbheap: process {pid} stood still for the {seconds:.1f} s of this answer, {until};"
        f" '{instead} {pid}' in a shell stops it only while it reads.\n"
    )


def _quiet_end(options: Options) -> None:
    """gdb's last line in a batch ("[Inferior 1 (process 1234) detached]") would follow the JSON document."""
    if options.json and STATUS.session.batch:
        with contextlib.suppress(gdb.error):
            gdb.execute("set print inferior-events off", to_string=True)


class AttachCommand(_Words):
    """``heap attach PID``."""

    def __init__(self, prefix: str) -> None:
        self.__doc__ = ATTACH_HELP.format(prefix=prefix)
        super().__init__(f"{prefix} attach", gdb.COMMAND_RUNNING)

    def run(self, words: list[str]) -> None:
        """Attach."""
        if len(words) != 1 or not words[0].isdecimal():
            raise UsageError("heap attach: which process? heap attach PID")
        attach(int(words[0]))
        STATUS.had_target = True


def _is_taken(name: str) -> bool:
    """Whether gdb has a command of exactly this name."""
    return name in gdb.execute(f"complete {name}", to_string=True).split("\n")


def _drop(event: object) -> None:
    KEEPER.drop()


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


_registered: list[HeapCommand] = []


def register() -> None:
    """Define the commands, once. Says so in one line when ``heap`` is taken and ``gdbheap`` is used instead."""
    if _registered:
        return
    prefix = OTHER_NAME if _is_taken(HEAP) else HEAP
    if prefix != HEAP:
        _write(
            "gdbheap: another extension has the command 'heap'; this one is 'gdbheap', with the same nouns.\n",
            gdb.STDERR,
        )
    _registered.extend(HeapCommand(command, prefix) for command in COMMANDS.values())
    AttachCommand(prefix)
    STATUS.had_target = bool(gdb.selected_inferior().threads())
    _watch()
    atexit.register(STATUS.finish)
