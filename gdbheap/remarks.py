"""Remarks as records: each states which data an answer lacks, or why the answer may be wrong.

``report/words/remarks.py`` has their sentences.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field, replace
from typing import Any, Literal

from gdbheap.dataclass import dataclass
from gdbheap.text import IN_GDB, IN_SHELL, printable_record, quoted

__all__ = ["Remark", "RemarkId"]

RemarkId = Literal[
    "allocator-is-other", "allocator-not-checked", "arrays-not-there", "containers-cut-off", "containers-not-told",
    "contexts-cut-off", "cut-graph", "edges-left-out", "edges-numbered", "first-paths", "holders-not-known",
    "jemalloc-blocks-moving", "jemalloc-extents-moving", "jemalloc-no-cache", "jemalloc-of-huge-pages", "locked",
    "malloc-drawn-as-other", "malloc-holds-nothing", "malloc-is-other", "malloc-moving", "mallocng-moving",
    "mappings-alone", "mimalloc-lists-moving", "mimalloc-not-known", "mimalloc-pages-moving", "no-paths",
    "no-python-calls", "no-types-drawn", "oldmalloc-moving", "other-malloc", "others-hold-not-known",
    "served-by-others", "since-another", "tcmalloc-blocks-moving", "tcmalloc-no-lists", "tcmalloc-spans-moving",
    "tls-cut-off", "too-many-arrays", "two-owners", "values-not-read", "zero-pages",
]  # fmt: skip


@dataclass(frozen=True)
class Remark:
    """A remark about an answer: its id, and the values in its sentence, by name.

    ``id``: a ``RemarkId``; the id in a file may be one that only a later release knows. Values are texts, numbers, and
    lists or dicts of these.
    """

    id: str
    values: dict[str, Any] = field(default_factory=dict)

    @property
    def harmless(self) -> Remark:
        """The remark with values that cannot be mistaken for gdbheap's commands or sentences. Use it for remarks from a
        file, which anybody may have written.
        """
        return self.changed(_harmless)

    def changed(self, change: Callable[[str], str]) -> Remark:
        """Return the remark with ``change`` applied to each of its texts."""
        return replace(self, values={name: _changed(value, change) for name, value in self.values.items()})


def _harmless(text: str) -> str:
    # Python prints a string inside a list or dict in single quotes, as gdbheap quotes its commands.
    is_command = text.split(" ", 1)[0] in (IN_GDB, IN_SHELL)
    return quoted(text, len(text)) if is_command else printable_record(text)


def _changed(value: Any, change: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, list):
        return [_changed(item, change) for item in value]
    if isinstance(value, Mapping):
        return {change(key): _changed(item, change) for key, item in value.items()}
    return value
