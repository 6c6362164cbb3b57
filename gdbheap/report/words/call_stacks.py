"""The text of ``gdbheap stacks``: the sites that allocated the most bytes, and the stacks."""

from __future__ import annotations

from gdbheap.report.formats.weighted import NO_STACK, label
from gdbheap.report.text.numbers import counted
from gdbheap.report.text.programs import program_text
from gdbheap.report.text.stack_text import stack_text
from gdbheap.report.text.style import Style
from gdbheap.report.text.tables import Column, join, table
from gdbheap.tracing.call_stacks import AllocatingStack, CallStacks, Site
from gdbheap.tracing.stack_settings import EVERY_CALL

__all__ = ["render"]

LEFT = True
COLUMNS = (
    Column("in use"), Column("%"), Column("blocks"), Column("allocated"), Column("calls"), Column("allocated by", LEFT),
)  # fmt: skip
MAX_SITES = 20


def render(answer: CallStacks, left_out: int, style: Style) -> str:
    """Return the text of the answer: the program that made the calls, a row for each site, then the stacks.

    ``left_out``: how many stacks are not listed.
    """
    sites = answer.sites[:MAX_SITES]
    rows = [_row(site, answer, style) for site in sites]
    rest = len(answer.sites) - len(sites)
    parts = [style.filled(f"{_about(answer, style)}{_largest(answer, style)}")]
    parts += [table(COLUMNS, rows, style, _total(answer, style))] if rows else []
    parts += [f"{counted(rest, 'more site')} not listed."] if rest else []
    parts += [_stack(stack, answer, style) for stack in answer.rows]
    parts += [f"{counted(left_out, 'more stack')} not listed."] if left_out else []
    notes = [*_notes(answer, style), *(f"{style.heading('Warning:')} {style.named(line)}" for line in answer.unread)]
    return join(*parts, *map(style.filled, notes))


def _about(answer: CallStacks, style: Style) -> str:
    program = program_text(answer.words, answer.exe)
    who = f"process {answer.pid} ({program})"
    if answer.since_call is not None:
        return (
            f"Between call {answer.since_call:,} and call {answer.call:,} of {who}, the memory in use changed by"
            f" {_signed(answer.bytes, style)}{_about_equal(answer)}."
        )
    exact = (
        ""
        if answer.in_use is None or answer.mean <= EVERY_CALL
        else f"; the exact figure is {style.bytes(answer.in_use)}"
    )
    return (
        f"After call {answer.call:,} of {answer.calls:,} in {who}, {style.bytes(answer.bytes)} in"
        f" {counted(answer.blocks, 'block')} were in use{_about_equal(answer)}{exact}."
    )


def _largest(answer: CallStacks, style: Style) -> str:
    """Return a sentence about the site that allocated the most bytes; "" if there is none."""
    first = max(answer.sites, key=lambda site: site.bytes, default=None)
    if first is None or first.frame is None or first.bytes <= 0:
        return ""
    return f" The most came from {label(first.frame)}: {style.bytes(first.bytes)}."


def _about_equal(answer: CallStacks) -> str:
    return "" if answer.mean <= EVERY_CALL else " (an estimate)"


def _signed(size: int, style: Style) -> str:
    return style.size(size) if size >= 0 else f"-{style.size(-size)}"


def _row(site: Site, answer: CallStacks, style: Style) -> list[str]:
    return [
        _signed(site.bytes, style),
        f"{100 * site.bytes / answer.bytes:.1f}" if answer.bytes and answer.since_call is None else "",
        f"{site.blocks:,}",
        _signed(site.allocated_bytes, style),
        f"{site.allocated_blocks:,}",
        label(site.frame) if site.frame is not None else NO_STACK,
    ]


def _total(answer: CallStacks, style: Style) -> list[str]:
    allocated = sum(site.allocated_bytes for site in answer.sites)
    calls = sum(site.allocated_blocks for site in answer.sites)
    share = "100.0" if answer.bytes and answer.since_call is None else ""
    return [_signed(answer.bytes, style), share, f"{answer.blocks:,}", _signed(allocated, style), f"{calls:,}", "total"]


def _stack(stack: AllocatingStack, answer: CallStacks, style: Style) -> str:
    share = f" ({100 * stack.bytes / answer.bytes:.1f} %)" if answer.bytes and answer.since_call is None else ""
    head = f"{_signed(stack.bytes, style)}{share} in {counted(stack.blocks, 'block')} from"
    frames = stack_text(stack.frames, style) if stack.frames else f"    {NO_STACK}"
    return f"{style.heading(head)}\n{frames}"


def _notes(answer: CallStacks, style: Style) -> list[str]:
    notes = []
    if answer.mean > EVERY_CALL:
        notes.append(
            f"The figures are estimates: on average, one stack was recorded for every {style.bytes(answer.mean)}"
            f" requested. Of the blocks in use, {answer.sampled_blocks:,} had a recorded stack."
        )
    elif answer.without:
        verbs = ("has", "it was") if answer.without == 1 else ("have", "they were")
        notes.append(
            f"{counted(answer.without, 'allocating call')} {verbs[0]} no stack: {verbs[1]} made by a signal handler "
            "that interrupted another call."
        )
    if answer.lost:
        notes.append(f"The figures lack {counted(answer.lost, 'call')} that could not be recorded.")
    if not answer.is_whole:
        notes.append("The trace is truncated: these figures cover only the part that was read.")
    return notes
