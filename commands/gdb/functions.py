"""Convenience functions of gdb: what is at an address, in expressions and in conditions of breakpoints."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import gdb

from gdbheap.answers.at import Block, at, find_block
from gdbheap.answers.describing import describe_blocks
from gdbheap.errors import UsageError
from gdbheap.heap import Heap
from gdbheap.target.machine import LARGEST_ADDRESS

__all__ = ["address_of", "define"]

# gdb makes no string of what is empty.
NONE = "(none)"
PLACES = (gdb.TYPE_CODE_FUNC, gdb.TYPE_CODE_METHOD, gdb.TYPE_CODE_ARRAY, gdb.TYPE_CODE_STRUCT, gdb.TYPE_CODE_UNION)
Answer = Callable[[Heap, int], "int | str"]
# Reads a heap, and makes one line of every error.
Ask = Callable[[Callable[[Heap], "int | str"]], "int | str"]


def address_of(value: gdb.Value, name: str) -> int:
    """What is no number (a function, an array) stands for its address. Raises UsageError, which calls it ``name``."""
    try:
        if value.type.strip_typedefs().code in PLACES:
            value = value.address or value
        return int(value) & LARGEST_ADDRESS
    except (gdb.error, TypeError, ValueError, OverflowError) as error:
        raise UsageError(f"{name} is no address: {error}") from None


class _Function(gdb.Function):
    """One function of an address. Its docstring is its help."""

    def __init__(self, name: str, answer: Answer, text: str, ask: Ask) -> None:
        self.__doc__ = text
        self._name, self._answer, self._ask = name, answer, ask
        super().__init__(name)

    def invoke(self, *args: gdb.Value) -> int | str:
        """Answer. Raises gdb.GdbError with one line."""
        return self._ask(lambda heap: self._answer(heap, self._address(args)))

    def _address(self, args: Sequence[gdb.Value]) -> int:
        if len(args) != 1:
            raise UsageError(f"${self._name} is about one address: ${self._name}(ADDR)")
        return address_of(args[0], f"what ${self._name} was given")


def define(ask: Ask) -> None:
    """Define the functions."""
    for name, (answer, text) in FUNCTIONS.items():
        _Function(name, answer, text, ask)


def _used(heap: Heap, address: int) -> Block | None:
    """The block at an address, if it is in use."""
    block = find_block(heap, address)
    return block if block is not None and block.state == "used" else None


def _block(heap: Heap, address: int) -> int:
    found = find_block(heap, address)
    return 0 if found is None else found.address


def _size(heap: Heap, address: int) -> int:
    found = find_block(heap, address)
    return 0 if found is None else found.size


def _type(heap: Heap, address: int) -> str:
    block = _used(heap, address)
    if block is None:
        return NONE
    found = describe_blocks(heap, [(block.address, block.size)])[block.address].kind
    return found.text()


def _owner(heap: Heap, address: int) -> str:
    if _used(heap, address) is None:
        return NONE
    found = at(heap, address, path=True)
    return found.path or (found.owner.what if found.owner is not None else NONE)


FUNCTIONS: dict[str, tuple[Answer, str]] = {
    "heap_block": (
        _block,
        """$heap_block(ADDR): where the block of the heap that holds ADDR begins, as malloc() returned it; 0
without one.

Example: x/4gx $heap_block($rdi)""",
    ),
    "heap_size": (
        _size,
        """$heap_size(ADDR): the bytes of the block of the heap that holds ADDR, with its header; 0 if none does.

Example: break consume if $heap_size(buffer) > 1 << 20""",
    ),
    "heap_type": (
        _type,
        """$heap_type(ADDR): what the block in use that holds ADDR is, as 'heap at' says: the type of an object,
whose part it is, or what its bytes look like; "(none)" if none in use holds it.

Example: break consume if $_streq($heap_type(item), "app.Session")""",
    ),
    "heap_owner": (
        _owner,
        """$heap_owner(ADDR): how a variable, a thread or a library's data leads to the block in use that holds ADDR, as
'heap at --path' says; "(none)" if none in use holds it. At each stop the first question reads all references.

Example: print $heap_owner(item)""",
    ),
}
