"""The records of machines: all facts that differ between CPU architectures, each stated once.

A target has the record of its program's machine. All other modules take sizes, limits, offsets and names from the
record; none of them tests for a certain machine. Sources: each machine's System V ABI; include/linux/elfcore.h,
asm/ptrace.h and asm/unistd.h of the kernel; features/*.xml of gdb.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace
from functools import cached_property, lru_cache

from gdbheap.dataclass import dataclass
from gdbheap.machines.image import CLASS_64, LITTLE_ENDIAN, MACHINE_AARCH64, MACHINE_X86_64, Header

# Page sizes of Linux on any machine, from i386 to ppc64 and aarch64. A target that claims another size is not believed.
SMALLEST_PAGE, LARGEST_PAGE = 4 << 10, 64 << 10
# Nothing is mapped below this address: vm.mmap_min_addr is 64 KiB by default, and at least one page.
LOWEST_ADDRESS = 4 << 10
MAX_ERRNO = 4095
# The size of a system call's number in code.
NUMBER_BYTES = 4


@dataclass(frozen=True)
class Notes:
    """The layout of a core's notes: offsets in bytes, registers by their index.

    ``prstatus``: the size of NT_PRSTATUS.
    ``registers``, ``count``: the offset of the registers in NT_PRSTATUS, and their number.
    ``general``: how many of these, from the first on, are general registers.
    ``thread_pointer``: the index of the thread pointer; None if another note has it.
    ``prpsinfo_*``, ``siginfo_*``: offsets in NT_PRPSINFO and NT_SIGINFO.
    """

    prstatus: int
    tid: int
    registers: int
    count: int
    general: int
    pc: int
    sp: int
    thread_pointer: int | None
    prpsinfo_pid: int
    prpsinfo_name: int
    name_size: int
    siginfo_code: int
    siginfo_pid: int


@dataclass(frozen=True)
class SystemCalls:
    """The facts that show whether a thread waits in a system call, and in which one.

    ``instruction``: the instruction of a system call. In a call, the code before the program counter ends with it.
    ``load``: the first bytes of the instruction before, which loads the number of the call, as in glibc's wrappers. The
    number is in its last four bytes. None if a register has the number.
    ``number_register``: the general register with the number.
    ``set_back``: whether the kernel may set the program counter of a stopped thread back to ``instruction``, to restart
    the call.
    ``of_malloc``: the calls that malloc makes (mmap, mprotect, munmap, brk, mremap, madvise, futex, getrandom).
    ``of_memory``: the names of the calls that map memory, change its protection and return it.
    ``arguments``, ``result``: the registers of the arguments and the result, by their index (as in ``Notes``).
    Functions take their first arguments in the same registers.
    """

    load: bytes | None
    instruction: bytes
    set_back: bool
    number_register: int
    of_malloc: frozenset[int]
    memfd_create: int
    arguments: tuple[int, ...]
    result: int
    of_memory: Mapping[int, str] = field(hash=False)

    @property
    def size(self) -> int:
        """The number of bytes of code right before the program counter that ``number`` needs as its argument
        ``code``.
        """
        return len(self.instruction) + (0 if self.load is None else len(self.load) + NUMBER_BYTES)

    def number(self, code: bytes, registers: Sequence[int]) -> int | None:
        """Return the number of the system call in which a thread is; None if it is in no call of a known form.

        ``code``: the ``size`` bytes before its program counter. ``registers``: its general registers.
        """
        if len(code) != self.size or not code.endswith(self.instruction):
            return None
        if self.load is None:
            return registers[self.number_register] if self.number_register < len(registers) else None
        known = code.startswith(self.load)
        return int.from_bytes(code[len(self.load) :][:NUMBER_BYTES], "little") if known else None


@dataclass(frozen=True)
class ThreadStorage:
    """The location of a thread's static thread-local data and of its ``struct pthread``.

    ``data_below``: whether the data ends at the thread pointer, where the C library's ``struct pthread`` begins
    (variant II of ELF's thread-local storage). Otherwise ``struct pthread`` ends there, and the data begins.
    ``has_self_pointer``: whether the word at the thread pointer points to itself.
    """

    data_below: bool
    has_self_pointer: bool

    def data(self, pointer: int, size: int) -> tuple[int, int]:
        """Return [start, end) of the ``size`` bytes of static thread-local data next to the thread pointer."""
        return (pointer - size, pointer) if self.data_below else (pointer, pointer + size)

    def descriptor(self, pointer: int, size: int) -> tuple[int, int]:
        """Return [start, end) of the ``size`` bytes of ``struct pthread`` next to the thread pointer."""
        return (pointer, pointer + size) if self.data_below else (pointer - size, pointer)


@dataclass(frozen=True)
class UnwindRegisters:
    """The numbers of a thread's registers in unwind tables.

    ``dwarf``: the registers' indexes (as in ``Notes``) by DWARF number, the program counter last.
    ``kept``: the DWARF numbers of the callee-saved registers.
    """

    dwarf: tuple[int, ...]
    kept: tuple[int, ...]


@dataclass(frozen=True)
class GdbNames:
    """gdb's names of the architecture and of its registers.

    ``saved``: the registers to restore after a single step over ``nop``. The step changes some of them, and gdbheap
    sets the others for it.
    ``restart``: the register that is set to -1 so that the kernel restarts no system call.
    ``registers``: all registers of a thread, in the order of ``Notes``.
    """

    architecture: str
    thread_pointer: str
    pc: str
    sp: str
    general: tuple[str, ...]
    saved: tuple[str, ...]
    restart: str
    nop: bytes
    registers: tuple[str, ...]


@dataclass(frozen=True)
class Machine:
    """The facts about one kind of machine.

    ``word``, ``page``: sizes in bytes.
    ``byte_order``: the name that Python uses, such as "little".
    ``user_end``: the end of the addresses that the kernel assigns, unless a program asks for higher ones.
    ``kernel_start``: the end of all addresses that a program can have.
    ``pointer_mask``: the bits of a pointer that are its address. Other bits may contain a program's own marks, or the
    signature of a return address.
    ``red_zone``: how many bytes below its stack pointer a function may use.
    ``restorer``: code that returns from a signal handler (rt_sigreturn(2)).
    ``restorer_keeps_result``: whether this code preserves the register of a function's result.
    ``has_patches``: whether gdbheap can change code in processes on this machine.
    ``relative_relocation``: the relocation type that adds an object's load address (R_*_RELATIVE).
    """

    name: str
    elf_class: int
    elf_machine: int
    word: int
    byte_order: str
    page: int
    user_end: int
    kernel_start: int
    pointer_mask: int
    red_zone: int
    notes: Notes
    system_calls: SystemCalls
    storage: ThreadStorage
    frames: UnwindRegisters
    gdb: GdbNames
    restorer: bytes
    restorer_keeps_result: bool
    has_patches: bool
    relative_relocation: int

    @property
    def title(self) -> str:
        """The machine's name in errors: ``64-bit x86_64``."""
        return f"{8 * self.word}-bit {self.name}"

    @cached_property
    def address_end(self) -> int:
        """The first number that is too large for a word, such as 1 << 64."""
        return 1 << 8 * self.word

    def is_of(self, header: Header) -> bool:
        """Return whether an ELF image is for this machine: its class, its byte order and its architecture are the
        same.
        """
        order = "little" if header.byte_order == LITTLE_ENDIAN else "big"
        found = (header.elf_class, order, header.machine)
        return found == (self.elf_class, self.byte_order, self.elf_machine)

    def with_page(self, size: int | None, ranges: Iterable[tuple[int, int]] = ()) -> Machine:
        """Return the machine with pages of ``size`` bytes (AT_PAGESZ).

        The target may state a wrong size. So the size is used only if Linux supports it and all ``ranges`` consist of
        whole pages of this size.
        """
        if size is None or size & (size - 1) or not SMALLEST_PAGE <= size <= LARGEST_PAGE:
            return self
        found = replace(self, page=size)
        fits = all(found.is_paged(start, end) for start, end in ranges if end <= self.kernel_start)
        return found if fits else self

    def of_program(self, size: int | None, ranges: Sequence[tuple[int, int]]) -> Machine:
        """Return the machine for a program that has these ``ranges`` of memory and states pages of ``size`` bytes.

        The number of bits in an address may depend on the kernel. It follows from the end of the highest range, the
        stack.
        """
        found = self.with_page(size, ranges)
        if self.pointer_mask == self.address_end - 1:
            return found
        end = max((end for _start, end in ranges if end < self.kernel_start), default=self.user_end)
        return replace(found, pointer_mask=(1 << (end - 1).bit_length()) - 1)

    def page_down(self, address: int) -> int:
        """Return the start of the page that contains ``address``."""
        return address // self.page * self.page

    def page_up(self, address: int) -> int:
        """Return the start of the first page at or after ``address``."""
        return -(-address // self.page) * self.page

    def is_paged(self, *numbers: int) -> bool:
        """Return whether all numbers are multiples of the page size."""
        return all(number % self.page == 0 for number in numbers)

    @cached_property
    def _word(self) -> struct.Struct:
        return structure("P", self.word, self.byte_order)

    def structure(self, fields: str) -> struct.Struct:
        """Return a struct without padding.

        ``fields``: letters of the module ``struct``; in addition, P is a word and N a signed word.
        """
        return structure(fields, self.word, self.byte_order)

    def word_of(self, raw: bytes, offset: int = 0) -> int:
        """Return the word at ``offset`` in ``raw``."""
        return int(self._word.unpack_from(raw, offset)[0])

    def words_of(self, raw: bytes) -> tuple[int, ...]:
        """Return all whole words in ``raw``. Bytes after the last whole word are ignored."""
        count = len(raw) // self.word
        letter = self._word.format[-1:]
        return struct.unpack(f"{self._word.format[0]}{count}{letter}", raw[: count * self.word])

    def codes_of(self, raw: bytes) -> list[int]:
        """Return all whole words in ``raw``, with only their address bits. Other bits may contain a signature."""
        return [word & self.pointer_mask for word in self.words_of(raw)]

    def is_error(self, result: int) -> bool:
        """Return whether a system call's result is an error number (syscall(2)): -4095 to -1."""
        return result >= self.address_end - MAX_ERRNO

    def word_up(self, address: int) -> int:
        """Return the first multiple of the word size at or after ``address``."""
        return -(-address // self.word) * self.word


@lru_cache(maxsize=256)
def structure(fields: str, word: int, byte_order: str) -> struct.Struct:
    """Return the same struct as ``Machine.structure``, for a machine with words of ``word`` bytes."""
    unsigned, signed = {4: ("I", "i"), 8: ("Q", "q")}[word]
    order = "<" if byte_order == "little" else ">"
    return struct.Struct(order + fields.replace("P", unsigned).replace("N", signed))


X86_64 = Machine(
    name="x86_64",
    elf_class=CLASS_64,
    elf_machine=MACHINE_X86_64,
    word=8,
    byte_order="little",
    page=4096,
    user_end=1 << 47,
    kernel_start=1 << 63,
    pointer_mask=(1 << 64) - 1,
    red_zone=128,
    # 27 registers: r15 to rdi, orig_rax, rip (the 17th), cs, eflags, rsp, ss, fs_base (the 22nd), gs_base …
    notes=Notes(
        prstatus=336, tid=32, registers=112, count=27, general=15, pc=16, sp=19, thread_pointer=21,
        prpsinfo_pid=24, prpsinfo_name=40, name_size=16, siginfo_code=8, siginfo_pid=16,
    ),
    system_calls=SystemCalls(
        load=b"\xb8", instruction=b"\x0f\x05", set_back=False, number_register=15,
        of_malloc=frozenset((9, 10, 11, 12, 25, 28, 202, 318)),
        of_memory={9: "mmap", 10: "mprotect", 11: "munmap", 12: "brk", 25: "mremap", 28: "madvise"}, memfd_create=319,
        arguments=(14, 13, 12, 7, 9, 8), result=10,
    ),
    storage=ThreadStorage(data_below=True, has_self_pointer=True),
    # rax rdx rcx rbx rsi rdi rbp rsp r8 … r15 rip; rbx, rbp and r12 to r15.
    frames=UnwindRegisters(
        dwarf=(10, 12, 11, 5, 13, 14, 4, 19, 9, 8, 7, 6, 3, 2, 1, 0, 16), kept=(3, 6, 12, 13, 14, 15)
    ),
    gdb=GdbNames(
        architecture="i386:x86-64", thread_pointer="fs_base", pc="rip", sp="rsp",
        general=("rax", "rbx", "rcx", "rdx", "rsi", "rdi", "rbp", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15"),
        saved=("rip", "eflags", "rax", "orig_rax"), restart="orig_rax", nop=b"\x90",
        registers=(
            "r15", "r14", "r13", "r12", "rbp", "rbx", "r11", "r10", "r9", "r8", "rax", "rcx", "rdx", "rsi", "rdi",
            "orig_rax", "rip", "cs", "eflags", "rsp", "ss", "fs_base", "gs_base", "ds", "es", "fs", "gs",
        ),
    ),
    restorer=b"\x48\xc7\xc0\x0f\x00\x00\x00\x0f\x05",
    restorer_keeps_result=False,
    has_patches=True,
    relative_relocation=8,
)  # fmt: skip

AARCH64 = Machine(
    name="aarch64",
    elf_class=CLASS_64,
    elf_machine=MACHINE_AARCH64,
    word=8,
    byte_order="little",
    page=4096,
    user_end=1 << 48,
    kernel_start=1 << 63,
    pointer_mask=(1 << 52) - 1,
    red_zone=0,
    # 34 registers: x0 to x30, sp, pc, pstate.
    notes=Notes(
        prstatus=392, tid=32, registers=112, count=34, general=31, pc=32, sp=31, thread_pointer=None,
        prpsinfo_pid=24, prpsinfo_name=40, name_size=16, siginfo_code=8, siginfo_pid=16,
    ),
    # svc #0, and the number in x8.
    system_calls=SystemCalls(
        load=None, instruction=b"\x01\x00\x00\xd4", set_back=True, number_register=8,
        of_malloc=frozenset((98, 214, 215, 216, 222, 226, 233, 278)),
        of_memory={222: "mmap", 226: "mprotect", 215: "munmap", 214: "brk", 216: "mremap", 233: "madvise"},
        memfd_create=279, arguments=(0, 1, 2, 3, 4, 5), result=0,
    ),
    storage=ThreadStorage(data_below=False, has_self_pointer=False),
    frames=UnwindRegisters(dwarf=tuple(range(33)), kept=tuple(range(19, 30))),
    gdb=GdbNames(
        architecture="aarch64", thread_pointer="tpidr", pc="pc", sp="sp",
        general=tuple(f"x{number}" for number in range(31)), saved=("pc", "cpsr", "x0", "x8"), restart="",
        nop=b"\x1f\x20\x03\xd5", registers=(*(f"x{number}" for number in range(31)), "sp", "pc", "cpsr"),
    ),
    restorer=b"\x68\x11\x80\xd2\x01\x00\x00\xd4",
    restorer_keeps_result=True,
    has_patches=False,
    relative_relocation=1027,
)  # fmt: skip

MACHINES = (X86_64, AARCH64)
# No address of a supported machine is larger than this.
LARGEST_ADDRESS = max(machine.address_end for machine in MACHINES) - 1
# No object can be larger than this: PTRDIFF_MAX.
LARGEST_SIZE = LARGEST_ADDRESS >> 1
# The largest ``user_end`` and ``kernel_start`` (see ``Machine``) of all machines.
USER_END = max(machine.user_end for machine in MACHINES)
KERNEL_START = max(machine.kernel_start for machine in MACHINES)
# The names of the supported machines in errors.
READ_TITLES = " and ".join(machine.title for machine in MACHINES)


def machine_of(header: Header) -> Machine | None:
    """Return the machine that an ELF image is for, with its usual page size; None if it is not supported."""
    return next((machine for machine in MACHINES if machine.is_of(header)), None)


def own_machine() -> Machine | None:
    """Return the machine that gdbheap runs on; None if it is not supported."""
    return next((machine for machine in MACHINES if machine.name == os.uname().machine), None)


# The machine on which gdbheap runs. If it is not supported, nothing is read, so any record serves.
THIS_MACHINE = own_machine() or X86_64


def machine_of_gdb(architecture: str) -> Machine | None:
    """Return the machine that has this name in gdb; None if it is not supported."""
    return next((machine for machine in MACHINES if machine.gdb.architecture == architecture), None)
