"""gdbheap's convenience functions for gdb, which describe addresses in expressions and in conditions of breakpoints."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import gdb

from gdbheap.answers.accounting.describing import describe_blocks
from gdbheap.answers.at import Block, at, find_block
from gdbheap.errors import UsageError
from gdbheap.heap import Heap
from gdbheap.machines.machine import LARGEST_ADDRESS

__all__ = ["address_of", "defined"]

# gdb cannot make a string from an empty text.
NONE = "(none)"
# The convenience variable that holds the latest text.
TEXT = "_heap_text"
PLACES = (gdb.TYPE_CODE_FUNC, gdb.TYPE_CODE_METHOD, gdb.TYPE_CODE_ARRAY, gdb.TYPE_CODE_STRUCT, gdb.TYPE_CODE_UNION)
Answer = Callable[[Heap, int], "int | str"]
# Calls a function with the heap, and converts each error into a gdb.GdbError of one line.
Ask = Callable[[Callable[[Heap], "int | str"]], "int | str"]


def address_of(value: gdb.Value, name: str) -> int:
    """Return the address that a value of gdb represents.

    A function, an array or a struct represents its own address. Any other value is itself the address, as a number.
    Raises UsageError. ``name``: the name of the value in the message.
    """
    try:
        if value.type.strip_typedefs().code in PLACES:
            value = value.address or value
        return int(value) & LARGEST_ADDRESS
    except (gdb.error, TypeError, ValueError, OverflowError) as error:
        raise UsageError(f"{name} is not an address: {error}") from None


def defined(ask: Ask) -> dict[str, Callable[[Sequence[gdb.Value]], int | gdb.Value]]:
    """Return gdbheap's convenience functions for gdb, by name. Each function is called with its arguments, and raises
    gdb.GdbError with a message of one line.
    """
    return {name: _asked(name, answer, ask) for name, answer in FUNCTIONS.items()}


def _asked(name: str, answer: Answer, ask: Ask) -> Callable[[Sequence[gdb.Value]], int | gdb.Value]:
    return lambda args: _placed(ask(lambda heap: answer(heap, _address(name, args))))


def _placed(answer: int | str) -> int | gdb.Value:
    """Return an answer as a value for gdb. A string is put into a convenience variable. Otherwise gdb's ``printf`` and
    ``eval`` would copy the string into the process by calling the process's malloc()."""
    if isinstance(answer, int):
        return answer
    gdb.set_convenience_variable(TEXT, answer)
    return gdb.convenience_variable(TEXT) or gdb.Value(answer)


def _address(name: str, args: Sequence[gdb.Value]) -> int:
    if len(args) != 1:
        raise UsageError(f"${name} takes one address: ${name}(ADDR)")
    return address_of(args[0], f"the argument of ${name}")


def _used(heap: Heap, address: int) -> Block | None:
    """Return the block that contains an address, if it is in use; otherwise None."""
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


FUNCTIONS: dict[str, Answer] = {"heap_block": _block, "heap_size": _size, "heap_type": _type, "heap_owner": _owner}
