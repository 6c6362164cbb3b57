"""Call malloc_stats() and capture its output.

``inferior_call`` says what must be free before. In addition the lock of ``stderr`` must be 0: malloc_stats() holds it
while it prints.

On this machine (``written_by_stats``) its write() calls are read and skipped: no descriptor changes, and what was in
the stream's buffer is there afterwards. If gdbheap is killed in between, the rest of the text appears on the process's
standard error. On a server, where gdb makes the calls (``malloc_stats``), the descriptor is replaced by a memory file
during the call."""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Iterator, Sequence

from gdbheap.commands.inferior_calls.inferior_call import (
    FREE_MUTEX,
    Bytes,
    Caller,
    Libc,
    Writer,
    bytes_kept,
    errno_kept,
)
from gdbheap.commands.inferior_calls.native_caller import NativeCaller, errno_of
from gdbheap.targets.target import AT_ENTRY

__all__ = ["malloc_stats", "prove_stream", "written_by_stats"]

MFD_CLOEXEC = 1
F_GETFD, F_SETFD = 1, 2
SEEK_END, PROT_READ, MAP_PRIVATE = 2, 1, 2
TEXT_LIMIT = 4 << 20

# struct _IO_FILE of glibc on x86_64 (libio/bits/types/struct_FILE.h; the same since 2.1).
FILE_MAGIC, FILE_MAGIC_MASK = 0xFBAD0000, 0xFFFF0000
WRITE_BASE, WRITE_POINTER, BUFFER, BUFFER_END, FILENO, FLAGS2, LOCK, OFFSET = 32, 40, 56, 64, 112, 116, 136, 144
FILE_SIZE, LARGEST_BUFFER = 216, 1 << 20
# _IO_lock_t: {int lock, cnt; void *owner}.
LOCK_SIZE = 16


def _stream(libc: Libc) -> int:
    """Return the address of the FILE of ``stderr``; the variable may be a copy in the program (a copy relocation).
    Raises GdbheapError."""
    program = libc.target.object_of(libc.target.auxv.get(AT_ENTRY, 0))
    owner = program if program is not None and program.exported("stderr") else libc.loaded
    variable = owner.symbol("stderr") or libc.address("stderr")
    stream = libc.target.space.word(variable)
    if libc.target.space.u32(stream) & FILE_MAGIC_MASK != FILE_MAGIC:
        raise libc.purpose.error("the process's stderr is no FILE of glibc")
    return stream


def _free_stream(libc: Libc, caller: Caller) -> int:
    """Return the address of the stream. Raises GdbheapError if it is locked or closed."""
    stream = _stream(libc)
    lock = _word(caller, stream + LOCK)
    if lock and caller.read(lock, 4) != FREE_MUTEX:
        raise libc.purpose.refusal("a thread holds the lock of stderr")
    if _descriptor(stream, caller) < 0:
        raise libc.purpose.error("the process has closed its stderr with fclose()")
    return stream


def prove_stream(libc: Libc, caller: Caller) -> None:
    """Raise GdbheapError unless malloc_stats() can print, in a process behind a server, without waiting for
    anything."""
    waiting = len(_waiting(_free_stream(libc, caller), caller))
    if waiting:
        raise libc.purpose.refusal(f"{waiting:,} bytes wait in stderr's buffer, and writing them may block")


def _waiting(stream: int, caller: Caller) -> bytes:
    """Return what was printed to a stream and is not written yet."""
    base, pointer = _word(caller, stream + WRITE_BASE), _word(caller, stream + WRITE_POINTER)
    return caller.read(base, min(pointer - base, LARGEST_BUFFER)) if base < pointer else b""


def written_by_stats(libc: Libc, caller: NativeCaller, mutexes: Sequence[int]) -> str:
    """Call malloc_stats() and return what it would have printed. The process is left as it was.

    ``prove_safe`` must have passed at the same stop. ``mutexes``: of all arenas, which were free then and are freed
    again if the call has to be undone. Raises GdbheapError."""
    stream = _free_stream(libc, caller)
    descriptor, waited = _descriptor(stream, caller), _waiting(stream, caller)
    calls = [(libc.address("malloc_stats"), ()), (libc.address("fflush"), (stream,))]
    freed = [(mutex, FREE_MUTEX) for mutex in mutexes]
    lock = _word(caller, stream + LOCK)
    if lock:
        freed.append((lock, caller.read(lock, LOCK_SIZE)))
    text = caller.captured(descriptor, calls, [errno_of(libc, caller), *_of_stream(libc, caller, stream)], freed)
    return text.removeprefix(waited).decode("utf-8", "replace")


def _of_stream(libc: Libc, caller: Caller, stream: int) -> list[Bytes]:
    """Return the bytes of a stream and its buffer, to be restored. A stream without a buffer keeps the one that it
    gets."""
    start, end = _word(caller, stream + BUFFER), _word(caller, stream + BUFFER_END)
    size = max(end - start, 0)
    if size > LARGEST_BUFFER:
        raise libc.purpose.refusal(f"stderr has a buffer of {size:,} bytes, more than a call can put back")
    places = ((start, size), (stream, FILE_SIZE)) if start else ((stream + FLAGS2, 4), (stream + OFFSET, 8))
    return [(address, caller.read(address, length)) for address, length in places]


def _word(caller: Caller, address: int) -> int:
    return int.from_bytes(caller.read(address, 8), "little")


def _descriptor(stream: int, caller: Caller) -> int:
    return int(struct.unpack("<i", caller.read(stream + FILENO, 4))[0])


def malloc_stats(libc: Libc, caller: Writer) -> str:
    """Have gdb call malloc_stats() and return what it printed. The process is left as it was, even if a call fails.

    ``prove_safe`` and ``prove_stream`` must have passed at the same stop. Raises GdbheapError."""
    stream = _stream(libc)
    with errno_kept(libc, caller), bytes_kept(caller, stream + OFFSET, 8):
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


def _memory_file(libc: Libc, caller: Writer) -> int:
    """Open a memory file in the process and return its descriptor. Its name is "": bytes 9 and 10 of any ELF header are
    padding. Raises GdbheapError."""
    name = libc.loaded.base + 9
    if libc.has("memfd_create"):
        file = caller.call(libc.address("memfd_create"), name, MFD_CLOEXEC)
    else:
        file = caller.call(libc.address("syscall"), libc.target.machine.system_calls.memfd_create, name, MFD_CLOEXEC)
    file = _signed32(file)
    if file < 0:
        raise libc.purpose.error("the process may not make a file in memory (memfd_create)")
    return file


@contextlib.contextmanager
def _redirected(libc: Libc, caller: Writer, descriptor: int, file: int) -> Iterator[None]:
    """Make ``descriptor`` refer to ``file`` within the block, then to its old file again (closed if it was closed)."""
    if descriptor == file:  # it was closed, and the new file got its number
        yield
        return
    flags = _signed32(caller.call(libc.address("fcntl"), descriptor, F_GETFD))
    saved = _signed32(caller.call(libc.address("dup"), descriptor))
    if flags >= 0 > saved:
        raise libc.purpose.error("the process has no descriptor left to keep its stderr in")
    try:
        caller.call(libc.address("dup2"), file, descriptor)
        yield
    finally:
        _restore(libc, caller, descriptor, saved, flags)


def _restore(libc: Libc, caller: Writer, descriptor: int, saved: int, flags: int) -> None:
    """Restore the descriptor and its close-on-exec flag, which dup2() does not copy."""
    if saved < 0:
        caller.call(libc.address("close"), descriptor)
        return
    caller.call(libc.address("dup2"), saved, descriptor)
    caller.call(libc.address("close"), saved)
    if flags > 0:
        caller.call(libc.address("fcntl"), descriptor, F_SETFD, flags)


def _contents(libc: Libc, caller: Writer, file: int) -> bytes:
    """Map the written text into the process, and return it."""
    size = min(caller.call(libc.address("lseek"), file, 0, SEEK_END), TEXT_LIMIT)
    if size <= 0:
        return b""
    address = caller.call(libc.address("mmap"), 0, size, PROT_READ, MAP_PRIVATE, file, 0)
    if address in (-1, 0):
        raise libc.purpose.error("the process may not map what malloc_stats() printed")
    try:
        return caller.read(address, size)
    finally:
        caller.call(libc.address("munmap"), address, size)


def _signed32(value: int) -> int:
    """Return the signed 32-bit number in the low half of a register; its upper half is undefined."""
    value &= 0xFFFFFFFF
    return value - (1 << 32) if value >> 31 else value
