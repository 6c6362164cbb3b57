"""Find the stacks that allocated the memory that a recorded program had in use after a given call."""

from __future__ import annotations

import os
import struct
from collections import defaultdict
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import field
from functools import cache
from typing import Union

from gdbheap import _native
from gdbheap.contents.python.running.line_tables import line_of
from gdbheap.dataclass import dataclass
from gdbheap.errors import UsageError
from gdbheap.host.file_systems import FileSystems
from gdbheap.host.headroom import room_for_copy
from gdbheap.layout.cpython import Release
from gdbheap.layout.shipped_tables import table
from gdbheap.stack_frames import NATIVE, PYTHON, StackFrame, few_inlined, frames_at
from gdbheap.stacks import EVALUATORS, NO_OBJECT, NativeFrame, merge
from gdbheap.targets.elf import ElfFiles
from gdbheap.targets.functions import Functions
from gdbheap.tracing.log import RecordedProcess, read_log

__all__ = ["END", "PEAK", "AllocatingStack", "CallStacks", "Namer", "Site", "call_stacks"]

PEAK, END = "peak", "end"
# The struct formats of a character, by the width of a text's characters.
CHARACTERS = {1: "B", 2: "H", 4: "I"}
MAX_CHARACTER, REPLACEMENT = 0x10FFFF, "\ufffd"
Moment = Union[int, str]


@dataclass(frozen=True)
class AllocatingStack:
    """A stack and the blocks that it allocated.

    ``bytes`` and ``blocks`` count its blocks in use. The fields ``allocated_…`` count all blocks that it has allocated
    so far. In a comparison of two calls, each figure is that after the later call minus that after the earlier call."""

    frames: list[StackFrame]
    bytes: int
    blocks: int
    allocated_bytes: int
    allocated_blocks: int


@dataclass(frozen=True)
class Site:
    """The sums of all stacks with the same site.

    The site of a stack is its innermost Python frame or, without one, its innermost C frame. ``frame`` is None for
    stacks without frames.
    """

    frame: StackFrame | None
    bytes: int
    blocks: int
    allocated_bytes: int
    allocated_blocks: int


@dataclass(frozen=True)
class CallStacks:
    """The answer of ``gdbheap stacks``: a process's stacks after ``call``; if ``since_call`` is set, the figures after
    ``since_call`` are subtracted. The sums are estimates unless ``mean`` is 1."""

    file: str
    pid: int
    began: int
    exe: str
    words: list[str]
    processes: int
    calls: int
    call: int
    since_call: int | None
    mean: int
    bytes: int
    blocks: int
    in_use: int | None
    sampled_blocks: int
    without: int
    lost: int
    pythons: list[str]
    is_whole: bool
    sites: list[Site] = field(default_factory=list)
    rows: list[AllocatingStack] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)
    ok: bool = True


@dataclass(frozen=True)
class _Point:
    call: int
    in_use: int | None


def call_stacks(path: str, pid: int | None, at: Moment, since: Moment | None = None) -> CallStacks:
    """Return the stacks of a log's process after a given call.

    ``pid``: the process, None for the process with the most calls.
    ``at``: the number of the call, or "peak" or "end".
    ``since``: another call, whose figures are subtracted, or None.

    Raises UsageError if the file is not a log or has no stacks, or if there is no such process or call.
    """
    log = read_log(path)
    process = log.chosen(pid, with_stacks=True)
    sums = _native.plan_calls(process.opened, process.frames, room_for_copy())
    point = _point(sums, at)
    before = None if since is None else _point(sums, since)
    moments = sorted({point.call, *([] if before is None else [before.call])})
    found = _native.live_stacks(process.opened, process.frames, room_for_copy(), process.who.stacks, moments)
    shares = dict(zip(moments, found.moments))
    figures = _figures(shares[point.call].shares, [] if before is None else shares[before.call].shares)
    namer = Namer(found, process.who)
    stacks = _merged(namer, figures)
    sampled = shares[point.call].sampled_blocks
    whole = found.whole and process.ended
    return CallStacks(
        path, process.who.pid, process.who.began, process.who.exe, process.who.words, len(log.processes), found.calls,
        point.call, None if before is None else before.call, process.who.stacks, sum(stack.bytes for stack in stacks),
        sum(stack.blocks for stack in stacks), point.in_use if before is None else None, sampled, found.without,
        process.lost, namer.releases, whole, _sites(stacks), stacks, namer.unread, whole,
    )  # fmt: skip


def _point(sums: _native.ReplayPlan, at: Moment) -> _Point:
    if at == PEAK:
        return _Point(sums.peak_call, sums.peak_bytes)
    if at == END or at == sums.calls:
        return _Point(sums.calls, sums.live_bytes)
    assert isinstance(at, int)
    if at > sums.calls:
        raise UsageError(f"the log contains only {sums.calls:,} calls")
    return _Point(at, sums.peak_bytes if at == sums.peak_call else None)


Figures = tuple[float, float, float, float]


def _figures(shares: Iterable[_native.StackShare], before: Iterable[_native.StackShare]) -> list[tuple[int, Figures]]:
    """Return (number, figures) for each stack: its figures in ``shares`` minus its figures in ``before``."""
    found: dict[int, list[float]] = defaultdict(lambda: [0.0] * 4)
    for sign, rows in ((1, shares), (-1, before)):
        for row in rows:
            values = (row.bytes, row.blocks, row.allocated_bytes, row.allocated_blocks)
            found[row.stack] = [sum_ + sign * value for sum_, value in zip(found[row.stack], values)]
    return [(stack, (row[0], row[1], row[2], row[3])) for stack, row in found.items()]


def _merged(namer: Namer, figures: Iterable[tuple[int, Figures]]) -> list[AllocatingStack]:
    """Merge stacks with equal frames. Return them ordered by bytes, most first."""
    sums: dict[tuple[StackFrame, ...], list[float]] = defaultdict(lambda: [0.0] * 4)
    for number, values in figures:
        frames = namer.frames(number)
        sums[frames] = [sum_ + value for sum_, value in zip(sums[frames], values)]
    stacks = [AllocatingStack(list(frames), *map(round, row)) for frames, row in sums.items()]
    return sorted(stacks, key=lambda stack: (-stack.bytes, -stack.allocated_bytes))


def _sites(stacks: Sequence[AllocatingStack]) -> list[Site]:
    sums: dict[StackFrame | None, list[int]] = defaultdict(lambda: [0] * 4)
    for stack in stacks:
        values = (stack.bytes, stack.blocks, stack.allocated_bytes, stack.allocated_blocks)
        frame = _site(stack.frames)
        sums[frame] = [sum_ + value for sum_, value in zip(sums[frame], values)]
    sites = [Site(frame, *row) for frame, row in sums.items()]
    return sorted(sites, key=lambda site: (-site.bytes, -site.allocated_bytes))


def _site(frames: Sequence[StackFrame]) -> StackFrame | None:
    """Return the frame that is the site of a stack; None for a stack without frames. The site is the innermost Python
    frame, because the C frames that it calls belong to the interpreter. In a stack without Python frames, the site is
    the innermost frame.
    """
    python = [frame for frame in frames if frame.kind == PYTHON]
    found = python or list(frames)
    return found[-1] if found else None


class Namer:
    """Names the frames of recorded stacks, from files on this machine that have the recorded build-ids."""

    def __init__(self, found: _native.LiveStacks, who: RecordedProcess) -> None:
        # Each access to a field of a native record creates a new object, so read each field once.
        self._stacks, self._codes = found.stacks, [_Code(code) for code in found.codes]
        self._objects = [_Object(loaded) for loaded in found.objects]
        self._files = ElfFiles()
        self._started = {who.exe: path_as_started(who)}
        self._functions: dict[tuple[str, str], Functions] = {}
        self._names: dict[tuple[int | None, int], str | None] = {}
        self._natives: dict[tuple[int | None, int], list[NativeFrame]] = {}
        self._pythons: dict[tuple[int, int], StackFrame] = {}
        evaluators = set(EVALUATORS.values())
        places = {place for stack in self._stacks for place in stack.native}
        self._interpreters = {place[0] for place in places if self._known(*place) in evaluators}

    @property
    def releases(self) -> list[str]:
        """The releases of Python whose code objects are in the stacks, such as "3.11"."""
        return [_release_text(number) for number in sorted({code.release for code in self._codes})]

    @property
    def unread(self) -> list[str]:
        """One line for each file, or part of a file, that could not be read so far."""
        return [*self._files.systems.warnings, *self._files.room.warnings()]

    def frames(self, number: int) -> tuple[StackFrame, ...]:
        """Return the frames of the stack with this number, outermost first."""
        stack = self._stacks[number]
        natives = [frame for frames in few_inlined(map(self._native, stack.native)) for frame in frames]
        groups = [[self._python(code, offset) for code, offset in group if code is not None] for group in stack.python]
        return tuple(reversed(merge(natives, groups, stack.cut, stack.torn)))

    def _native(self, place: tuple[int | None, int]) -> list[NativeFrame]:
        if place not in self._natives:
            self._natives[place] = self._read_native(*place)
        return self._natives[place]

    def _read_native(self, number: int | None, place: int) -> list[NativeFrame]:
        if number is None:
            return [NativeFrame(StackFrame(NO_OBJECT, "", None, NATIVE), False, False)]
        loaded, known = self._objects[number], self._known(number, place)
        path = self._started.get(loaded.path, loaded.path)
        name = known or f"{path.rsplit('/', 1)[-1]}+{place - loaded.bias:#x}"
        if number in self._interpreters:
            return [NativeFrame(StackFrame(name, path, None, NATIVE), known == EVALUATORS[3], True)]
        functions = self._functions[loaded.path, loaded.build_id]
        frames = frames_at(functions, place - loaded.bias, name, path)
        return [NativeFrame(frame, False, False) for frame in frames]

    def _known(self, number: int | None, place: int) -> str | None:
        if number is None:
            return None
        if (number, place) not in self._names:
            loaded = self._objects[number]
            key = loaded.path, loaded.build_id
            if key not in self._functions:
                self._functions[key] = self._read_functions(*key)
            self._names[number, place] = self._functions[key].find(place - loaded.bias)
        return self._names[number, place]

    def _read_functions(self, path: str, build_id: str) -> Functions:
        file = self._files.get(path)
        if file is None or (file.build_id or "") != build_id:
            return Functions(None, build_id or None, self._files.room)
        with suppress(OSError), file.open() as stream:
            return Functions(stream, build_id or None, self._files.room)
        return Functions(None, build_id or None, self._files.room)

    def _python(self, number: int, offset: int) -> StackFrame:
        if (number, offset) not in self._pythons:
            code = self._codes[number]
            self._pythons[number, offset] = StackFrame(code.name, code.file, code.line(offset), PYTHON)
        return self._pythons[number, offset]


def path_as_started(who: RecordedProcess) -> str:
    """Return the path of a recorded program. If a symbolic link on this machine started it, return the link's path."""
    first = who.words[0] if who.words else ""
    path = first if first.startswith("/") else os.path.join(os.path.dirname(who.exe), first)
    if "/" in first and path != first or os.path.basename(path) == os.path.basename(who.exe):
        return who.exe
    held = FileSystems().find(path)
    return path if held is not None and held.path == who.exe else who.exe


class _Object:
    def __init__(self, loaded: _native.LoadedCode) -> None:
        self.path = bytes(loaded.path).decode(errors="surrogateescape")
        self.build_id = bytes(loaded.build_id).hex()
        self.bias = loaded.bias


class _Code:
    def __init__(self, code: _native.PythonCode) -> None:
        self.release, self._first_line, self._lines = code.release, code.first_line, bytes(code.lines)
        self.name, self.file = _text(code.name), _text(code.file)

    def line(self, offset: int) -> int | None:
        """Return the source line of the instruction at this offset in the code; None if unknown."""
        release = _release(self.release)
        try:
            return None if release is None else line_of(release, self._lines, self._first_line, offset)
        except IndexError:
            return None


def _release_text(number: int) -> str:
    return f"{number >> 8}.{number & 255}"


@cache
def _release(number: int) -> Release | None:
    text = _release_text(number)
    fields = table("cpython")["releases"].get(text)
    return None if fields is None else Release(text, number >> 8, number & 255, fields)


def _text(text: tuple[int, Sequence[int]]) -> str:
    """Decode a Python string. ``text``: the bytes for each character, and the string's content as it was in memory.

    As in Python, the two halves of a surrogate pair are not joined. A number that is not a character becomes U+FFFD,
    because a log may be forged.
    """
    width, content = text
    if width not in CHARACTERS:
        return "?"
    raw = bytes(content)
    numbers = struct.unpack_from(f"<{len(raw) // width}{CHARACTERS[width]}", raw)
    return "".join(chr(number) if number <= MAX_CHARACTER else REPLACEMENT for number in numbers)
