"""Calling malloc_stats() in a live process: the proof that the call cannot hang, and the capture of what it prints.

What must be free before the call, and what each costs when it is not:

- every thread must be outside of malloc. While the process has one thread, malloc takes no lock, and a list that is
  half linked makes malloc_stats() read nonsense; with more threads the lock that is held would never be released,
  because only the calling thread runs;
- every arena's mutex must be 0: malloc_stats() locks each in turn (glibc malloc/malloc.c, ``__malloc_stats``);
- the lock of ``stderr`` must be 0: malloc_stats() holds it while it prints.

What is changed in the process, and put back: the descriptor behind ``stderr`` (it is a file in memory during the call),
the cached offset in its FILE, ``errno``. gdb puts the registers back. Nothing here imports gdb."""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from gdbheap.allocators.inside import malloc_range
from gdbheap.answers.arenas import Arenas
from gdbheap.errors import GdbheapError, one_line
from gdbheap.target.target import AT_ENTRY

if TYPE_CHECKING:
    from gdbheap.target.elf import LoadedObject
    from gdbheap.target.target import Target

__all__ = ["Caller", "Stack", "malloc_stats", "prove_safe"]

SYS_MEMFD_CREATE, MFD_CLOEXEC = 319, 1
F_GETFD, F_SETFD = 1, 2
SEEK_END, PROT_READ, MAP_PRIVATE = 2, 1, 2
TEXT_LIMIT = 4 << 20
INSTEAD = "use 'heap arenas', which asks nobody"

# struct _IO_FILE of glibc on x86_64 (libio/bits/types/struct_FILE.h; the same since 2.1).
FILE_MAGIC, FILE_MAGIC_MASK = 0xFBAD0000, 0xFFFF0000
WRITE_BASE, WRITE_POINTER, FILENO, LOCK, OFFSET = 32, 40, 112, 136, 144


@dataclass(frozen=True)
class Stack:
    """The program counters of one thread, innermost first. ``broken``: why the walk ended early, "" if it did not."""

    name: str
    counters: list[int]
    broken: str


class Caller(Protocol):
    """What gdb can do in the process that stands still."""

    def stacks(self) -> list[Stack]:
        """The stack of every thread."""
        ...

    def call(self, function: int, *arguments: int) -> int:
        """Call a function with integers; its result as a signed 64-bit number. Raises GdbheapError."""
        ...

    def write(self, address: int, data: bytes) -> None:
        """Change memory of the process. Raises GdbheapError."""
        ...

    def read(self, address: int, size: int) -> bytes:
        """Memory as it is now. Raises GdbheapError."""
        ...

    def read_file(self, descriptor: int) -> bytes | None:
        """The contents of one of the process's open files, None when it cannot be opened from here."""
        ...

    def is_regular(self, descriptor: int) -> bool:
        """Whether a descriptor of the process is known to be a regular file, so that a write to it cannot block."""
        ...


@dataclass(frozen=True)
class Libc:
    """The process's C library, by the file whose build-id is the one in memory."""

    loaded: LoadedObject
    target: Target

    def address(self, name: str) -> int:
        """Where a function or variable is. Raises GdbheapError."""
        found = self.loaded.symbol(name)
        if found is None:
            raise GdbheapError(f"heap stats: {self.loaded.path} has no {name}: {INSTEAD}")
        return found

    def has(self, name: str) -> bool:
        """Whether ``name`` is there."""
        return self.loaded.symbol(name) is not None

    @property
    def stream(self) -> int:
        """The FILE behind ``stderr``: the variable is the program's own copy where it was linked to have one."""
        program = self.target.object_of(self.target.auxv.get(AT_ENTRY, 0))
        owner = program if program is not None and program.exported("stderr") else self.loaded
        variable = owner.symbol("stderr") or self.address("stderr")
        stream = self.target.space.u64(variable)
        if self.target.space.u32(stream) & FILE_MAGIC_MASK != FILE_MAGIC:
            raise GdbheapError(
                f"heap stats: the process's stderr is no FILE of glibc: {INSTEAD}"
            )
        return stream


def find_libc(target: Target) -> Libc:
    """The C library that holds malloc_stats. Raises GdbheapError when no file here is the same as the process's."""
    for loaded in target.objects:
        if loaded.exported("malloc_stats") and loaded.exported("gnu_get_libc_version"):
            return Libc(loaded, target)
    raise GdbheapError(
        "heap stats: no file here has the build-id of the process's C library, so that malloc_stats() is not found: "
        + INSTEAD
    )


def prove_safe(libc: Libc, arenas: Arenas, caller: Caller) -> None:
    """Raise GdbheapError, naming the thread and the reason, unless the call cannot hang."""
    _check_threads(libc, caller.stacks())
    _check_arenas(arenas, caller)
    _check_stream(libc.stream, caller)


def _refuse(reason: str) -> GdbheapError:
    return GdbheapError(
        f"heap stats: malloc_stats() is not called, because {reason}: let the process run on and try again"
    )


def _check_threads(libc: Libc, stacks: Sequence[Stack]) -> None:
    place = malloc_range(libc.loaded)
    if place is None:
        raise GdbheapError(f"heap stats: {libc.loaded.path} has no malloc: {INSTEAD}")
    start, end = place
    for stack in stacks:
        if any(start <= counter < end or start < counter <= end for counter in stack.counters):
            raise _refuse(f"thread {stack.name} is inside malloc")
        if stack.broken and _leaves_unknown(libc, stack):
            raise _refuse(f"thread {stack.name} may be inside malloc (its stack breaks off: {one_line(stack.broken)})")


def _leaves_unknown(libc: Libc, stack: Stack) -> bool:
    """Whether a stack that broke off did so before it left the C library: malloc may then be further out.

    malloc calls nothing outside of the C library and the kernel, except from a signal handler; the frames below one are
    followed through the handler's own unwind table."""
    return not stack.counters or libc.loaded.contains(stack.counters[-1])


def _check_arenas(arenas: Arenas, caller: Caller) -> None:
    for arena in arenas.arenas:
        if caller.read(arena.address, 4) != bytes(4):
            raise _refuse(f"the mutex of arena {arena.index} at {arena.address:#x} is held")


def _check_stream(stream: int, caller: Caller) -> None:
    lock = _word(caller, stream + LOCK)
    if lock and caller.read(lock, 4) != bytes(4):
        raise _refuse("a thread holds the lock of stderr")
    descriptor = _descriptor(stream, caller)
    if descriptor < 0:
        raise GdbheapError(
            f"heap stats: the process has closed its stderr with fclose(): {INSTEAD}"
        )
    waiting = _word(caller, stream + WRITE_POINTER) - _word(caller, stream + WRITE_BASE)
    if waiting > 0 and not caller.is_regular(descriptor):
        raise _refuse(f"{waiting:,} bytes wait in stderr's buffer, and writing them may block")


def _word(caller: Caller, address: int) -> int:
    return int(struct.unpack("<Q", caller.read(address, 8))[0])


def _descriptor(stream: int, caller: Caller) -> int:
    return int(struct.unpack("<i", caller.read(stream + FILENO, 4))[0])


def malloc_stats(libc: Libc, caller: Caller) -> str:
    """Call it and return what it printed. The process is as before afterwards, also when a call fails.

    Raises GdbheapError. ``prove_safe`` must have passed on the same stop."""
    stream = libc.stream
    with _errno_kept(libc, caller), _bytes_kept(caller, stream + OFFSET, 8):
        caller.call(libc.address("fflush"), stream)
        file = _memory_file(libc, caller)
        try:
            with _redirected(libc, caller, _descriptor(stream, caller), file):
                caller.call(libc.address("malloc_stats"))
                caller.call(libc.address("fflush"), stream)
            text = _contents(libc, caller, file)
        finally:
            caller.call(libc.address("close"), file)
    return text.decode("utf-8", "replace")


@contextlib.contextmanager
def _errno_kept(libc: Libc, caller: Caller) -> Iterator[None]:
    """The thread may stand between a system call that failed and the look at errno."""
    with _bytes_kept(caller, caller.call(libc.address("__errno_location")), 4):
        yield


@contextlib.contextmanager
def _bytes_kept(caller: Caller, address: int, size: int) -> Iterator[None]:
    before = caller.read(address, size)
    try:
        yield
    finally:
        if caller.read(address, size) != before:
            caller.write(address, before)


def _memory_file(libc: Libc, caller: Caller) -> int:
    """A file in memory, open in the process. Its name is "": byte 9 of any ELF header is padding, and so is byte 10."""
    name = libc.loaded.base + 9
    if libc.has("memfd_create"):
        file = caller.call(libc.address("memfd_create"), name, MFD_CLOEXEC)
    else:
        file = caller.call(libc.address("syscall"), SYS_MEMFD_CREATE, name, MFD_CLOEXEC)
    file = _signed32(file)
    if file < 0:
        raise GdbheapError(f"heap stats: the process may not make a file in memory (memfd_create): {INSTEAD}")
    return file


@contextlib.contextmanager
def _redirected(libc: Libc, caller: Caller, descriptor: int, file: int) -> Iterator[None]:
    """Inside the block ``descriptor`` leads to ``file``, after it to where it led before (nowhere if it was closed)."""
    if descriptor == file:  # it was closed, and the new file got its number
        yield
        return
    flags = _signed32(caller.call(libc.address("fcntl"), descriptor, F_GETFD))
    saved = _signed32(caller.call(libc.address("dup"), descriptor))
    if flags >= 0 > saved:
        raise GdbheapError(f"heap stats: the process has no descriptor left to keep its stderr in: {INSTEAD}")
    try:
        caller.call(libc.address("dup2"), file, descriptor)
        yield
    finally:
        _restore(libc, caller, descriptor, saved, flags)


def _restore(libc: Libc, caller: Caller, descriptor: int, saved: int, flags: int) -> None:
    """dup2() leaves out the close-on-exec flag, so that it is set again."""
    if saved < 0:
        caller.call(libc.address("close"), descriptor)
        return
    caller.call(libc.address("dup2"), saved, descriptor)
    caller.call(libc.address("close"), saved)
    if flags > 0:
        caller.call(libc.address("fcntl"), descriptor, F_SETFD, flags)


def _contents(libc: Libc, caller: Caller, file: int) -> bytes:
    """What was written: read from outside where the file can be opened there, else mapped into the process and read."""
    found = caller.read_file(file)
    if found is not None:
        return found[:TEXT_LIMIT]
    size = min(caller.call(libc.address("lseek"), file, 0, SEEK_END), TEXT_LIMIT)
    if size <= 0:
        return b""
    address = caller.call(libc.address("mmap"), 0, size, PROT_READ, MAP_PRIVATE, file, 0)
    if address in (-1, 0):
        raise GdbheapError(f"heap stats: the process may not map what malloc_stats() printed: {INSTEAD}")
    try:
        return caller.read(address, size)
    finally:
        caller.call(libc.address("munmap"), address, size)


def _signed32(value: int) -> int:
    """The int in the low half of a register; what is above it means nothing."""
    value &= 0xFFFFFFFF
    return value - (1 << 32) if value >> 31 else value
