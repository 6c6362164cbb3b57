"""Places in a program's code where its threads can be caught: after system calls, and at the start of functions.

gdbheap catches threads by patching the code there. The patching is native code (native/access/src/process/patch). Only
x86-64 is supported.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from gdbheap import _native
from gdbheap.dataclass import dataclass
from gdbheap.errors import Unsupported
from gdbheap.machines import image
from gdbheap.targets.target import Target
from gdbheap.targets.unwind_tables import modules_of, room_for_tables

__all__ = ["Condition", "CodePlace", "PatchPlan", "call_places", "function_places", "plan"]

# SIGURG, SIGWINCH, SIGCHLD and SIGCONT, which do nothing by default (SIGCONT only while the process is not stopped).
QUIET_SIGNALS = (23, 28, 17, 18)
# File name prefixes of the known C libraries, glibc and musl.
LIBCS = ("libc.so", "libc-", "libc.musl", "ld-musl")
ENDBR64 = bytes.fromhex("f30f1efa")
UNKNOWN_SIZE = 64
LARGEST_FUNCTION = 64 << 10
FUNCTION_ALIGNMENT = 16


@dataclass(frozen=True)
class Condition:
    """A condition on a function's arguments. A call that does not meet it is not caught.

    ``operand``: the "first" or "second" argument, or the "product" of both. "chunk size": the size of the chunk to
    which the first argument points.
    ``test``: "==", ">=" or "<=".
    ``value``: the number with which the operand is compared.
    """

    operand: str
    test: str
    value: int


@dataclass(frozen=True)
class CodePlace:
    """Code at ``address`` in a function, at which threads are caught.

    ``start``, ``function``: the address of the function, and its bytes.
    ``what``: the function's name, or the number of the system call that the code has just made.
    ``before``: the address at which the instructions of that call begin.
    """

    address: int
    before: int | None
    start: int
    function: bytes
    conditions: tuple[Condition, ...]
    what: int | str


class _Text(NamedTuple):
    start: int
    end: int


class _Cave(NamedTuple):
    """Unused bytes after the code of an object, in which patches can be put.

    ``start``: their address. ``text``: the address of the code. ``stays``: whether the object is never unloaded.
    """

    start: int
    bytes: bytes
    text: int
    stays: bool


@dataclass(frozen=True)
class PatchPlan:
    """Patches for ``places``, in the same order.

    ``signal``: the number of the signal with which caught threads report; ``refused``: the places that cannot be
    patched, each with the reason.
    """

    places: list[CodePlace]
    patches: list[_native.CodePatch]
    signal: int
    refused: list[tuple[CodePlace, str]]


def call_places(target: Target, numbers: Iterable[int]) -> list[CodePlace]:
    """Return the places where the target's code makes one of these system calls, ascending.

    System calls whose number is not a constant in the code are not found.
    """
    texts = [_Text(start, end) for start, end in _texts(target)]
    modules = modules_of(target, target.space)
    sites = _native.find_call_sites(target.space, texts, modules, room_for_tables(), list(numbers))
    return [_call_place(target, site) for site in sites]


def _call_place(target: Target, site: _native.CallSite) -> CodePlace:
    code = _function(target, site.start, site.end)
    return CodePlace(site.address, site.before, site.start, code, (), site.number)


def function_places(target: Target, name: str, conditions: Sequence[Condition]) -> list[CodePlace]:
    """Return the beginnings of all exported functions with this name.

    The dynamic linker's own function is left out, because no other code calls it. A landing pad for indirect calls
    (endbr64) must stay a function's first instruction, so the place is after the landing pad.
    """
    found = []
    for loaded in target.objects:
        extent = loaded.extent(name) if loaded.exported(name) else None
        if extent is None or loaded.is_dynamic_linker:
            continue
        start, size = extent
        code = _function(target, start, start + min(size or UNKNOWN_SIZE, LARGEST_FUNCTION))
        skipped = len(ENDBR64) if code.startswith(ENDBR64) else 0
        found.append(CodePlace(start + skipped, None, start, code, tuple(conditions), name))
    return found


def plan(target: Target, places: Sequence[CodePlace], caught: int) -> PatchPlan:
    """Return the patches for these places; those that cannot be patched are in ``refused``.

    ``caught``: the signals that the process handles, one bit each (SigCgt of ``status``). Raises Unsupported if the
    process handles all signals that gdbheap could use.
    """
    signal = next((number for number in QUIET_SIGNALS if not caught >> (number - 1) & 1), None)
    if signal is None:
        raise Unsupported(
            "the process handles SIGURG, SIGWINCH, SIGCHLD and SIGCONT: gdbheap needs one of them to see calls"
        )
    caves = list(_caves(target))
    try:
        return PatchPlan(list(places), _native.plan_patches(places, caves, signal), signal, [])
    except ValueError:
        return _plan_each(places, caves, signal)


def _plan_each(places: Sequence[CodePlace], caves: list[_Cave], signal: int) -> PatchPlan:
    """Return the plan for the places that can be patched together. All other places are in ``refused``, with the
    reason.
    """
    kept: list[CodePlace] = []
    refused: list[tuple[CodePlace, str]] = []
    for place in places:
        try:
            _native.plan_patches([*kept, place], caves, signal)
            kept.append(place)
        except ValueError as error:
            refused.append((place, str(error)))
    return PatchPlan(kept, _native.plan_patches(kept, caves, signal), signal, refused)


def left_patches(target: Target) -> list[_native.LeftPatch]:
    """Return the patches that a killed gdbheap left in the process.

    A patch has a header. The header is accepted if the patched address is code of an object. The object's file must
    have the original bytes there. If the object has no file, the header must lie in the same object.
    """
    found = [left for cave in _caves(target) for left in _native.find_left_patches(cave)]
    return [left for left in found if _is_credible(target, left)]


def _is_credible(target: Target, left: _native.LeftPatch) -> bool:
    last = left.address + len(left.original) - 1
    loaded = target.object_of(left.address)
    if not left.original or loaded is None or not loaded.contains(last) or not _is_code(target, left.address, last):
        return False
    if loaded.elf is None or not loaded.elf.has_contents:
        return loaded.contains(left.start)
    return loaded.elf.bytes_at(left.address - loaded.bias, len(left.original)) == left.original


def _texts(target: Target) -> Iterator[tuple[int, int]]:
    """Yield the mapped executable segments, [start, end), of all objects."""
    for loaded in target.objects:
        for segment in loaded.segments:
            start = loaded.bias + segment.address
            end = start + segment.file_size
            if segment.type == image.PT_LOAD and segment.flags & image.PF_X and _is_code(target, start, end - 1):
                yield start, end


def _is_code(target: Target, *addresses: int) -> bool:
    mappings = [target.mappings.find(address) if address > 0 else None for address in addresses]
    return all(mapping is not None and mapping.executable and mapping.private for mapping in mappings)


def _caves(target: Target) -> Iterator[_Cave]:
    """Yield the unused rest of the last page of each executable segment, where patches can be put."""
    for start, end in _texts(target):
        page_end = target.machine.page_up(end)
        if end < page_end and _is_code(target, page_end - 1):
            yield _Cave(end, _read(target, end, page_end), start, _stays(target, start))


def _stays(target: Target, address: int) -> bool:
    """Return whether the object at an address is never unloaded by dlclose().

    The program, its C library and the dynamic linker are never unloaded.
    """
    loaded = target.object_of(address)
    if loaded is None:
        return False
    is_libc = os.path.basename(loaded.path).startswith(LIBCS)
    return loaded is target.objects[0] or loaded.is_dynamic_linker or is_libc


def _function(target: Target, start: int, end: int) -> bytes:
    """Return the bytes of a function and of the padding after it.

    The padding is needed for a short function, which has fewer than the five bytes of a jump.
    """
    return _read(target, start, end + -end % FUNCTION_ALIGNMENT)


def _read(target: Target, start: int, end: int) -> bytes:
    return target.space.read_available(start, end - start)
