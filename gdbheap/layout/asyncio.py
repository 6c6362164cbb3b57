"""The offsets of fields in asyncio tasks that are implemented in C (``TaskObj``, Modules/_asynciomodule.c).

Up to 3.13 a table gives the offsets by release. Since 3.14 the module publishes them in an ELF section
(``_AsyncioDebug``, Py_AsyncioModuleDebugOffsets). The published words are used only if they are consistent.
"""

from __future__ import annotations

from collections.abc import Iterable

from gdbheap._native import Space
from gdbheap.dataclass import dataclass
from gdbheap.errors import Fault
from gdbheap.layout.cpython import Release
from gdbheap.targets.elf import LoadedObject

SYMBOL, SECTION = "_AsyncioDebug", ".AsyncioDebug"
# The first words: size, task_name, task_awaited_by, task_is_task, task_awaited_by_is_set, task_coro, task_node.
PUBLISHED = 7
MAX_TASK = 2 << 10


@dataclass(frozen=True)
class TaskLayout:
    """The offsets of the fields of an asyncio task.

    ``state``: the state, a 32-bit enum.
    ``coro``: the coroutine.
    ``waiter``: the future for which the task waits.
    ``name``: the name; None for releases whose tasks have no name (up to 3.7).
    """

    state: int
    coro: int
    waiter: int
    name: int | None


def task_layout(space: Space, release: Release, loaded: Iterable[LoadedObject]) -> TaskLayout | None:
    """Return the offsets of the fields of a release's tasks; None if they are unknown.

    The offsets come from the table, or from the offsets that the asyncio module in ``loaded`` publishes.
    """
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
    """Return the layout that the module publishes at ``address``; None if the layout is impossible.

    Each field must be a whole word within a task, and no two fields may be the same word. In all releases the state
    lies four bytes before ``task_is_task``, and the awaited future in the word before the coroutine.
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
