"""The text of ``heap at``: what an address lies in, who owns that block, and what it points to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gdbheap.errors import one_line
from gdbheap.report.text.numbers import address_text, size_text
from gdbheap.report.text.stack_text import stack_text
from gdbheap.report.text.style import Style
from gdbheap.report.words.arrays import in_array_text

if TYPE_CHECKING:
    from gdbheap.answers.at import At, AtMapping, Block, Object, Owner
    from gdbheap.stacks import AllocatingCall

__all__ = ["maker_lines", "render"]

# At most this many of the blocks to which a block refers are listed.
SHOWN = 8


def render(answer: At, style: Style, address: int, with_maker: bool = False) -> str:
    """Return the text of the answer. The first line says what contains the address, such as an object or a mapping. A
    line follows for each further fact.

    ``with_maker``: add the recorded stack that allocated the block, or a line that says that the log has none.
    """
    known = (
        ("object", answer.object and _object(answer.object, style)),
        ("owner", answer.owner and _owner(answer.owner)),
        ("array", answer.array and in_array_text(answer.array, style)),
        ("path", answer.path),
        ("block", answer.block and _block(answer.block, address, style)),
        ("mapping", _mapping(answer.mapping, style)),
    )
    lines = [f"  {title:<8} {_printable(text)}" for title, text in known if text] + _refers(answer, style)
    made = maker_lines(answer.made, style) if with_maker else []
    if answer.allocated_at is not None:
        own = answer.allocated_at
        place = f"{own.file}:{own.line}"
        lines.append(f"  {'line':<8} {place}, which requested {style.bytes(own.asked)} (recorded by tracemalloc)")
    return "\n".join([style.heading(_sentence(answer, address, style)), *lines, *made])


def _refers(answer: At, style: Style) -> list[str]:
    """Return a line for each of the largest blocks to which the block refers."""
    shown = answer.refers[:SHOWN]
    lines = [
        f"  {'' if place else 'refers':<8} {address_text(row.address)}, {style.bytes(row.size)}, {_printable(row.what)}"
        for place, row in enumerate(shown)
    ]
    more = answer.refers_to - len(shown)
    return [*lines, f"  {'':<8} and {more:,} more"] if more > 0 else lines


def maker_lines(made: AllocatingCall | None, style: Style) -> list[str]:
    """Return lines with the recorded call that allocated a block, and its stack; one line if no call was recorded."""
    if made is None:
        return ["  allocated by  an unknown call: no stack was recorded"]
    about = (
        f"  allocated by  a call that requested {style.bytes(made.asked)} and got {address_text(made.address)}, from"
    )
    return [about, stack_text(made.frames, style)]


def _printable(text: str) -> str:
    """Return the text with "?" for characters that cannot be printed. Its blanks stay, because they are a part of a
    str's value."""
    return "".join(character if character.isprintable() else "?" for character in text)


def _sentence(answer: At, address: int, style: Style) -> str:
    name = address_text(address)
    if answer.object is not None:
        return f"{name} is in a Python object of type {one_line(answer.object.type, 200)}."
    if answer.owner is not None and answer.owner.type is not None:
        return f"{name} is in a block that an object of type {one_line(answer.owner.type, 200)} owns."
    if answer.block is not None:
        is_told = answer.variable is not None and answer.owner is not None and answer.variable in answer.owner.what
        holds = f"; its content: {one_line(answer.owner.what, 200)}" if answer.owner and not is_told else ""
        block = f"a block of {answer.block.allocator} that is {_state(answer.block)}{holds}"
        return f"{name} is in {block}.{_further(answer, style)}"
    mapping = answer.mapping
    if mapping.whose != "other":
        return f"{name} is in {mapping.whose}."
    size = size_text(mapping.end - mapping.start)
    return f"{name} is in a mapping of {size} that the program or a library made itself; no block is known there."


def _further(answer: At, style: Style) -> str:
    """Return a sentence that names the holder of a used block, or the command that finds it."""
    if answer.variable is not None:
        return f" {one_line(answer.variable, 200)} holds the block."
    is_told = answer.block is None or answer.block.state != "used" or answer.path is not None
    return "" if is_told else style.named(" 'heap why' shows what holds the block.")


def _object(found: Object, style: Style) -> str:
    text = f": {found.text}" if found.text else ""
    return f"{address_text(found.address)}, {style.bytes(found.size)}, {found.type}{text}"


def _owner(owner: Owner) -> str:
    return (
        f"{address_text(owner.address)}, {owner.type}; the block contains the object's {owner.what}"
        if owner.type is not None
        else ""
    )


def _state(block: Block) -> str:
    """Return "used", or "free" with the free list that contains the block. A block in a thread cache is free for the
    program, but malloc_stats() counts it as used."""
    return block.state if block.state in ("used", "free") else f"free ({block.list or block.state})"


def _block(block: Block, address: int, style: Style) -> str:
    arena = "" if block.arena is None else f", arena {block.arena}"
    free_list = f", on {block.list}" if block.list else ""
    inside = f", the address is {address - block.address:,} bytes into it" if address > block.address else ""
    asked = "" if block.asked is None else f", {style.bytes(block.asked)} requested"
    parts = "" if block.mappings == 1 else f", ends at {block.end:#x}, spans {block.mappings:,} mappings"
    return (
        f"{address_text(block.address)}, {style.bytes(block.size)}, {block.state}, {block.allocator}"
        f"{arena}{free_list}{asked}{inside}{parts}"
    )


def _mapping(mapping: AtMapping, style: Style) -> str:
    size = style.bytes(mapping.end - mapping.start)
    name = f" {mapping.name}" if mapping.name else ""
    huge = f", {style.bytes(mapping.huge)} of it in transparent huge pages" if mapping.huge else ""
    return f"{mapping.start:#x}-{mapping.end:#x} {mapping.perms}{name}, {size}, {mapping.whose}{huge}"
