"""Where C's asyncio tasks (``TaskObj``, Modules/_asynciomodule.c) have their fields.

Up to 3.13 a table gives the offsets by release. Since 3.14 the module publishes them: ``_AsyncioDebug`` in a section of
its own (Py_AsyncioModuleDebugOffsets). Its words are believed only if they fit each other.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from gdbheap._native import Space
from gdbheap.errors import Fault
from gdbheap.layout.cpython import Release
from gdbheap.targets.elf import LoadedObject

SYMBOL, SECTION = "_AsyncioDebug", ".AsyncioDebug"
# The first words: size, task_name, task_awaited_by, task_is_task, task_awaited_by_is_set, task_coro, task_node.
PUBLISHED = 7
MAX_TASK = 2 << 10


@dataclass(frozen=True)
class TaskLayout:
    """Offsets in a task: ``state`` (a 32-bit enum), the coroutine, the future that it waits for, and the name.

    ``name`` is None if tasks have none (up to 3.7).
    """

    state: int
    coro: int
    waiter: int
    name: int | None


def task_layout(space: Space, release: Release, loaded: Iterable[LoadedObject]) -> TaskLayout | None:
    """Return the layout of a release's tasks, or None if it is neither known nor published."""
    coro = release.get("task_coro")
    if coro is not None:
        return TaskLayout(release["task_state"], coro, release["task_waiter"], release.get("task_name"))
    for one in loaded:
        for address in _places(one):
            found = _published(space, address)
            if found is not None:
                return found
    return None


def _places(loaded: LoadedObject) -> Iterable[int]:
    symbol = loaded.symbol(SYMBOL)
    if symbol is not None:
        yield symbol
    yield from (start for name, start, _size in loaded.sections() if name == SECTION)


def _published(space: Space, address: int) -> TaskLayout | None:
    """Return the layout that the module publishes, or None if it cannot be right.

    Each field must be a word within a task, distinct from the others. The state is the half word before task_is_task,
    and the awaited future comes right before the coroutine, in all releases.
    """
    word = space.machine.word
    try:
        words = space.machine.words_of(space.read(address, word * PUBLISHED))
    except Fault:
        return None
    size, name, awaited_by, is_task, _is_set, coro, node = words
    pointers = (name, awaited_by, coro, node)
    fit = all(2 * word <= at <= size - word and at % word == 0 for at in pointers)
    if size > MAX_TASK or not fit or len(set(pointers)) < len(pointers) or not awaited_by < is_task < coro - word:
        return None
    return TaskLayout(is_task - 4, coro, coro - word, name)
