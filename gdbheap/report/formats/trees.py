"""Convert answers with sizes to stacks with weights, for programs that draw stacks. A frame is a line of the ledger, a
holder or an object; its width shows the bytes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from gdbheap.report.formats.composition import USED, composition
from gdbheap.stack_frames import StackFrame

if TYPE_CHECKING:
    from gdbheap.answers.contexts import Contexts
    from gdbheap.answers.dominator_tree import DominatorTree
    from gdbheap.answers.heap_map import HeapMap
    from gdbheap.answers.owners import Owners
    from gdbheap.answers.sampled_stacks import SampledStacks
    from gdbheap.first_page.ledger import Ledger
    from gdbheap.snapshots.type_places import TypePlaces
    from gdbheap.stacks import Weighted

__all__ = ["contexts_tree", "ledger_tree", "owners_tree", "retained_tree", "sampled_tree"]

FREE = "free"
OTHERS = "others"
DEEPER = StackFrame("deeper levels", "", None, USED)
# The most frames of one stack, the frames that a stack may always have, and the most frames of all stacks together.
#
# There are limits because a forged process can have chains of any length. In a large tree stacks may have fewer frames,
# but never fewer than the second number.
MOST_LEVELS, LEAST_LEVELS, MOST_FRAMES = 100, 8, 1 << 21


def ledger_tree(answer: Ledger, drawn: HeapMap | None = None, places: TypePlaces | None = None) -> list[Weighted]:
    """Return resident memory by allocator, arena, state and type, as the function ``composition`` does. If residency is
    unknown, return the address space.
    """
    whole = StackFrame("RSS" if answer.rss.bytes is not None else "address space", "", None, "rest")
    cells = composition(answer, drawn, places)
    return [((whole, *frames), size, count) for frames, size, count in cells if size > 0]


def owners_tree(answer: Owners) -> list[Weighted]:
    """Return stacks with a frame for each holder and for each kind of its blocks. The weights add up to all memory in
    use."""
    found: list[Weighted] = []
    for group in answer.groups:
        names = ["in use", *([group.kind] if group.kind else []), group.root or OTHERS]
        parts = group.parts or []
        found += [(_frames([*names, part.what]), part.bytes, part.count) for part in parts]
        size, count = (getattr(group, key) - sum(getattr(part, key) for part in parts) for key in ("bytes", "count"))
        if size > 0:
            found.append((_frames([*names, group.what or OTHERS] if not parts else [*names, OTHERS]), size, count))
    for one in answer.owners:
        found.append((_frames(["in use", one.path or one.chain, one.what]), one.size, 1))
    size, count = answer.bytes - sum(row[1] for row in found), answer.count - sum(row[2] for row in found)
    return [*found, (_frames(["in use", OTHERS]), size, count)] if size > 0 else found


def retained_tree(answer: DominatorTree) -> list[Weighted]:
    """Return the dominator tree as weighted stacks of names. An object's cell lies in the cell of its dominator. The
    width of a cell shows the bytes that its object retains.

    The counts of blocks are 0. Objects at deeper levels than a tree may have are merged into one cell.
    """
    found: list[Weighted] = []
    ways: list[tuple[StackFrame, ...]] = []
    most = _levels(len(answer.nodes))
    for node in answer.nodes:
        # In ``nodes``, a dominator comes before the nodes that it dominates.
        ways.append(_above(_frames(["reached"]) if node.above is None else ways[node.above], node.name, most))
        if node.own > 0:
            found.append((ways[-1], node.own, 0))
    if answer.others > 0:
        found.append((_frames(["reached", OTHERS]), answer.others, 0))
    return found


def contexts_tree(answer: Contexts) -> list[Weighted]:
    """Return the memory contexts, each inside of its parent, and with an inner cell for its free memory.

    The weights add up to the memory of all contexts. Contexts at deeper levels than a tree may have are merged into one
    cell.
    """
    sums: list[tuple[tuple[StackFrame, ...], int, int]] = []
    ways: list[tuple[StackFrame, ...]] = []
    most = _levels(len(answer.rows))
    for row in answer.rows:
        del ways[row.level :]
        ways.append(_above(ways[-1] if ways else (), row.name, most))
        before = sums.pop()[1:] if sums and sums[-1][0] is ways[-1] else (0, 0)
        sums.append((ways[-1], before[0] + row.used, before[1] + row.free))
    free = StackFrame(FREE, "", None, FREE)
    rows = (row for way, used, left in sums for row in ((way, used, 0), ((*way, free), left, 0)))
    return [row for row in rows if row[1] > 0]


def sampled_tree(answer: SampledStacks) -> list[Weighted]:
    """Return the stacks of sampled blocks, without the frames of the allocator that took the samples."""
    return [(tuple(row.frames[: len(row.frames) - row.allocator_frames]), row.bytes, row.count) for row in answer.rows]


def _levels(count: int) -> int:
    """Return how many levels the stacks of a tree with ``count`` cells may have."""
    return max(LEAST_LEVELS, min(MOST_LEVELS, MOST_FRAMES // max(count, 1)))


def _above(below: tuple[StackFrame, ...], name: str, most: int) -> tuple[StackFrame, ...]:
    """Return the stack ``below`` with the frame ``name`` at its end. A stack with more than ``most`` levels ends with
    the frame DEEPER instead."""
    if len(below) > most:
        return below
    return (*below, *_frames([name])) if len(below) < most else (*below, DEEPER)


def _frames(names: Sequence[str]) -> tuple[StackFrame, ...]:
    return tuple(StackFrame(name, "", None, USED) for name in names)
