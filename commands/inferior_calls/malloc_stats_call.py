"""Call malloc_stats() and capture its output. ``inferior_call`` describes which locks must be free before a call.

The lock of ``stderr`` must be free too, because malloc_stats() holds it while it prints.

On this machine (``written_by_stats``), gdbheap reads the data of the write() calls and skips these calls. So no
descriptor changes, and the stream's buffer is the same afterwards. If gdbheap is killed during the call, the rest of
the text appears on the process's standard error.

On a server, where gdb makes the calls (``malloc_stats``), a memory file replaces the descriptor during the call.
"""

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
    """Return the address of the FILE of ``stderr``. The variable ``stderr`` may be a copy in the program (a copy
    relocation). Raises GdbheapError."""
    program = libc.target.object_of(libc.target.auxv.get(AT_ENTRY, 0))
    owner = program if program is not None and program.exported("stderr") else libc.loaded
    variable = owner.symbol("stderr") or libc.address("stderr")
    stream = libc.target.space.word(variable)
    if libc.target.space.u32(stream) & FILE_MAGIC_MASK != FILE_MAGIC:
        raise libc.purpose.error("the process's stderr is not a FILE of glibc")
    return stream


def _free_stream(libc: Libc, caller: Caller) -> int:
    """Return the address of the FILE of ``stderr``. Raises GdbheapError if it is locked or closed."""
    stream = _stream(libc)
    lock = _word(caller, stream + LOCK)
    if lock and caller.read(lock, 4) != FREE_MUTEX:
        raise libc.purpose.refusal("a thread holds the lock of stderr")
    if _descriptor(stream, caller) < 0:
        raise libc.purpose.error("the process has closed its stderr with fclose()")
    return stream


def prove_stream(libc: Libc, caller: Caller) -> None:
    """Raise GdbheapError unless malloc_stats() can print without waiting. This check is for a process behind a
    server."""
    waiting = len(_waiting(_free_stream(libc, caller), caller))
    if waiting:
        raise libc.purpose.refusal(f"{waiting:,} bytes wait in stderr's buffer, and writing them may block")


def _waiting(stream: int, caller: Caller) -> bytes:
    """Return the text that was printed to a stream but is still in its buffer."""
    base, pointer = _word(caller, stream + WRITE_BASE), _word(caller, stream + WRITE_POINTER)
    return caller.read(base, min(pointer - base, LARGEST_BUFFER)) if base < pointer else b""


def written_by_stats(libc: Libc, caller: NativeCaller, mutexes: Sequence[int]) -> str:
    """Call malloc_stats() and return its output, which the process does not print. The process is unchanged afterwards.

    ``prove_safe`` must have passed during the same stop. ``mutexes``: the addresses of all arenas' mutexes.
    ``prove_safe`` found them free; they are freed again if the call has to be undone. Raises GdbheapError.
    """
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
    """Return the bytes to restore after the call: the stream's structure and its buffer. A stream without a buffer
    keeps the buffer that it gets during the call.
    """
    start, end = _word(caller, stream + BUFFER), _word(caller, stream + BUFFER_END)
    size = max(end - start, 0)
    if size > LARGEST_BUFFER:
        raise libc.purpose.refusal(f"stderr has a buffer of {size:,} bytes, more than gdbheap can restore")
    places = ((start, size), (stream, FILE_SIZE)) if start else ((stream + FLAGS2, 4), (stream + OFFSET, 8))
    return [(address, caller.read(address, length)) for address, length in places]


def _word(caller: Caller, address: int) -> int:
    return int.from_bytes(caller.read(address, 8), "little")


def _descriptor(stream: int, caller: Caller) -> int:
    return int(struct.unpack("<i", caller.read(stream + FILENO, 4))[0])


def malloc_stats(libc: Libc, caller: Writer) -> str:
    """Call malloc_stats() in the process and return its output. The process is unchanged afterwards, even if a call
    fails.

    ``prove_safe`` and ``prove_stream`` must have passed during the same stop. Raises GdbheapError.
    """
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
    """Make a memory file in the process and return its descriptor. Raises GdbheapError.

    memfd_create() reads the file's name from the process's memory. An empty name will do: bytes 9 and 10 of the C
    library's ELF header are always padding (zeros).
    """
    name = libc.loaded.base + 9
    if libc.has("memfd_create"):
        file = caller.call(libc.address("memfd_create"), name, MFD_CLOEXEC)
    else:
        file = caller.call(libc.address("syscall"), libc.target.machine.system_calls.memfd_create, name, MFD_CLOEXEC)
    file = _signed32(file)
    if file < 0:
        raise libc.purpose.error("the process cannot make a file in memory (memfd_create)")
    return file


@contextlib.contextmanager
def _redirected(libc: Libc, caller: Writer, descriptor: int, file: int) -> Iterator[None]:
    """Make ``descriptor`` refer to ``file`` inside the block. Afterwards it refers to its old file again, or is closed
    again if it was closed before."""
    if descriptor == file:  # the descriptor was closed, so that the new file got its number
        yield
        return
    flags = _signed32(caller.call(libc.address("fcntl"), descriptor, F_GETFD))
    saved = _signed32(caller.call(libc.address("dup"), descriptor))
    if flags >= 0 > saved:
        raise libc.purpose.error("the process has no free descriptor that could save its stderr")
    try:
        caller.call(libc.address("dup2"), file, descriptor)
        yield
    finally:
        _restore(libc, caller, descriptor, saved, flags)


def _restore(libc: Libc, caller: Writer, descriptor: int, saved: int, flags: int) -> None:
    """Make the descriptor refer to its old file again, and restore its close-on-exec flag, which dup2() does not
    copy."""
    if saved < 0:
        caller.call(libc.address("close"), descriptor)
        return
    caller.call(libc.address("dup2"), saved, descriptor)
    caller.call(libc.address("close"), saved)
    if flags > 0:
        caller.call(libc.address("fcntl"), descriptor, F_SETFD, flags)


def _contents(libc: Libc, caller: Writer, file: int) -> bytes:
    """Map the file with the printed text into the process, and return the text."""
    size = min(caller.call(libc.address("lseek"), file, 0, SEEK_END), TEXT_LIMIT)
    if size <= 0:
        return b""
    address = caller.call(libc.address("mmap"), 0, size, PROT_READ, MAP_PRIVATE, file, 0)
    if address in (-1, 0):
        raise libc.purpose.error("the process cannot map the text that malloc_stats() printed")
    try:
        return caller.read(address, size)
    finally:
        caller.call(libc.address("munmap"), address, size)


def _signed32(value: int) -> int:
    """Return the low half of a register as a signed 32-bit number. The upper half is undefined."""
    value &= 0xFFFFFFFF
    return value - (1 << 32) if value >> 31 else value
