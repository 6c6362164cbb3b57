"""The sentences of remarks: the cause, a colon, and what part of the answer it affects."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gdbheap.remarks import Remark, RemarkId
from gdbheap.report.text.numbers import counted, listed
from gdbheap.text import printable_record

__all__ = ["SENTENCES", "sentence_of"]

# The value that is a sentence of ours, which may quote a command.
ERROR = "error"
# The most threads that a sentence names.
MOST = 5


def sentence_of(warning: str | Remark) -> str:
    """Return the sentence of a remark; any other warning is a sentence already."""
    if isinstance(warning, str):
        return warning
    sentence = SENTENCES.get(warning.id)  # type: ignore[call-overload]  # a file may have any id
    try:
        values = {name: value if name == ERROR else printable_record(value) for name, value in warning.values.items()}
        text: str = sentence.format(**values) if isinstance(sentence, str) else sentence(**values)
    except (TypeError, ValueError, KeyError, AttributeError):
        # The remark is from a file of another release, or of anybody.
        return f"the remark {warning.id!r} is not known here: {warning.values}"
    return text


def _threads(threads: list[int], unsure: bool) -> str:
    named = ", ".join(map(str, threads[:MOST]))
    more = f" and {len(threads) - MOST} others" if len(threads) > MOST else ""
    told = ", as far as can be told without names of functions" if unsure else ""
    return f"{'threads' if len(threads) > 1 else 'thread'} {named}{more}{told}"


def _moving(allocator: str, what: str) -> Callable[..., str]:
    """Return a function for the sentence about threads inside an allocator and what they may be changing."""

    def sentence(threads: list[int], unsure: bool, **counts: int) -> str:
        return f"caught inside {allocator}: {_threads(threads, unsure)} may be just {what.format(**counts)}"

    return sentence


def _pages(threads: list[int], unsure: bool, pages: int) -> str:
    changing = f"changing a page ({counted(pages, 'page')} whose count or lists are off)"
    return _moving("mimalloc", changing)(threads, unsure)


def _in_malloc(threads: list[int]) -> str:
    names = ", ".join(map(str, threads[:MOST])) or "one that holds an arena's lock"
    return f"stopped inside malloc: thread {names}; lists and sizes may be half changed there"


def _in_mallocng(slots: int) -> str:
    moving = f" ({counted(slots, 'slot')} being handed out or given back)" if slots else ""
    return f"caught inside mallocng: a thread was just changing a group{moving}"


def _others(malloc: str, titles: list[str]) -> str:
    return f"{malloc}'s malloc holds nothing: {listed(titles)} is here in its place"


def _other_malloc(malloc: str, name: str, path: str, evidence: str, idle: bool) -> str:
    where = f"{path}, {evidence}"
    in_place = f"malloc here is {name}'s ({where}) and {malloc}'s own arenas are empty"
    return f"{in_place if idle else f'{name} is here too ({where})'}: {name}'s blocks are not walked and not counted"


def _unread(counts: dict[str, int]) -> str:
    told = ", ".join(f"{count:,} {kind}" for kind, count in sorted(counts.items()))
    return f"values of these types are not read: {told} have no row"


SENTENCES: dict[RemarkId, str | Callable[..., Any]] = {
    "allocator-is-other": "{error}: the memory of {allocator} counts as other memory",
    "allocator-not-checked": "{error}: {allocator} is not checked",
    "arrays-not-there": "{count:,} objects that look like arrays or tables are left out: their memory is not there",
    "containers-cut-off": (
        "more words look like containers of C++ or Rust than there can be: not all of these have a name"
    ),
    "containers-not-told": (
        "of more than {blocks:,} blocks containers are not told from others: 'heap chunks --by=type' tells them"
    ),
    "cut-graph": "not all references could be read: a holder has at least the bytes that are listed for it",
    "edges-left-out": "of more than {blocks:,} blocks: edges, and what blocks retain, are left out without --edges",
    "edges-numbered": ("only about {most:,} references were named, those near the roots: the others have numbers"),
    "first-paths": ("paths are shown for the first {most:,} of {blocks:,} blocks: no path is shown for the others"),
    "holders-not-known": "holders are not known: {error}",
    "jemalloc-blocks-moving": _moving(
        "jemalloc", "moving free blocks between slabs and a cache, which count as used, or as cached still"
    ),
    "jemalloc-extents-moving": _moving(
        "jemalloc",
        "changing extents, a slab or a cache ({extents} extents without a class or a lasting state, {both} blocks both "
        "cached and free, {astray} entries of caches that lead to no block, {slabs} slabs whose count is off)",
    ),
    "jemalloc-no-cache": (
        "no thread's cache of jemalloc was found in {module}: blocks that one has count as used (there is none with "
        "MALLOC_CONF=tcache:false)"
    ),
    "jemalloc-of-huge-pages": (
        "{astray:,} bytes of blocks of jemalloc in {module} are of its huge page allocator (opt.hpa), of which no "
        "tables were found: what is free between them counts as other memory"
    ),
    "locked": "memory is locked (mlock): of that the kernel takes back nothing but the end of the break",
    "malloc-drawn-as-other": "{error}: malloc's memory is drawn as other memory",
    "malloc-holds-nothing": (
        "{malloc}'s malloc holds nothing, because nobody has called it, or because another allocator is used that "
        "cannot be recognised: the memory of such an allocator counts as other memory"
    ),
    "malloc-is-other": "{error}: malloc's memory counts as other memory",
    "malloc-moving": _in_malloc,
    "mallocng-moving": _in_mallocng,
    "mappings-alone": "{error}: memory is told apart by its mappings alone, not by what is in use",
    "mimalloc-lists-moving": _moving("mimalloc", "moving a list of free blocks, which count as used"),
    "mimalloc-not-known": (
        "what looks like mimalloc's in {module} is laid out as no release that is known ({nearest}): its blocks are "
        "not walked, its memory counts as other"
    ),
    "mimalloc-pages-moving": _pages,
    "no-paths": "no paths are shown: {error}",
    "no-python-calls": ("a stack has no call of the interpreter's loop by name: frames of C are left out there"),
    "no-types-drawn": "the picture has no types: {error}",
    "oldmalloc-moving": "caught inside oldmalloc: chunks are free and in no bin",
    "other-malloc": _other_malloc,
    "others-hold-not-known": "who else holds it is not known: {error}",
    "served-by-others": _others,
    "since-another": "{file} is a look at another process: 'heap diff' compares the two",
    "tcmalloc-blocks-moving": _moving("tcmalloc", "moving free blocks between spans and a cache, which count as used"),
    "tcmalloc-no-lists": (
        "no central lists of tcmalloc were found in {module}: blocks in transfer caches count as used"
    ),
    "tcmalloc-spans-moving": _moving(
        "tcmalloc",
        "changing a span or a cache ({locked} central lists are locked, {chains} lists of free blocks are not as they "
        "say, {astray} of their entries lead to no block of theirs, {spans} spans whose count is off)",
    ),
    "too-many-arrays": "there are {count:,} arrays or tables: only the largest {most:,} are listed",
    "two-owners": "two owners claim the bytes at {address:#x}: they do not count for {owner}, the second",
    "values-not-read": _unread,
    "zero-pages": ("zero pages cannot be told apart: the lines add up to {bytes} bytes more than the kernel's Rss"),
}
