"""The context in which the library answers a question: it decides whether answers and errors show contents of
memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from gdbheap.errors import GdbheapError, UsageError

if TYPE_CHECKING:
    from gdbheap.heap import Heap

__all__ = ["disclosing"]


@contextmanager
def disclosing(heaps: Sequence[Heap], no_text: bool) -> Iterator[None]:
    """Within the block, let answers and errors about ``heaps`` show contents of memory, unless ``no_text`` is true."""
    for heap in heaps:
        heap.disclosure.contents = not no_text
    try:
        yield
    except UsageError:
        raise
    except GdbheapError as error:
        for heap in heaps if no_text else ():
            error = type(error)(heap.disclosure.numbers(str(error)))
        raise error
