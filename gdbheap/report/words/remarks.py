"""The sentences of remarks. A sentence names a cause and, after a colon, the part of the answer that it affects."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gdbheap.remarks import Remark, RemarkId
from gdbheap.report.text.numbers import counted, listed
from gdbheap.text import printable_record, quoted

__all__ = ["SENTENCES", "sentence_of"]

# The value with this name is a sentence of gdbheap's own, which may quote a command.
ERROR = "error"
# A sentence names at most this many threads.
MOST = 5


def sentence_of(warning: str | Remark) -> str:
    """Return the sentence of a warning. A Remark is converted to words; a str is already a sentence."""
    if isinstance(warning, str):
        return warning
    sentence = SENTENCES.get(warning.id)  # type: ignore[call-overload]  # a file may have any id
    try:
        values = {name: value if name == ERROR else printable_record(value) for name, value in warning.values.items()}
        text: str = sentence.format(**values) if isinstance(sentence, str) else sentence(**values)
    except (TypeError, ValueError, KeyError, AttributeError):
        # The remark is from a file of another release of gdbheap, or a file that somebody forged.
        return f"this release does not know the warning {quoted(warning.id)}: it is left out"
    return text


def _threads(threads: list[int], unsure: bool) -> str:
    named = ", ".join(map(str, threads[:MOST]))
    more = f" and {len(threads) - MOST} others" if len(threads) > MOST else ""
    told = " (uncertain, because names of functions are missing)" if unsure else ""
    return f"{'threads' if len(threads) > 1 else 'thread'} {named}{more}{told}"


def _stopped(threads: list[int]) -> str:
    return "were stopped" if len(threads) > 1 else "was stopped"


def _moving(allocator: str, what: str, effect: str) -> Callable[..., str]:
    """Return a function that makes the sentence about threads that were stopped inside an allocator.

    ``what``: the data that these threads may have been changing. ``effect``: what this means for the answer.
    """

    def sentence(threads: list[int], unsure: bool) -> str:
        stopped = f"{_threads(threads, unsure)} {_stopped(threads)}"
        return f"{stopped} inside {allocator}, maybe while changing {what}: {effect}"

    return sentence


def _present(*parts: tuple[int, str, str]) -> str:
    """Return a text that names the parts whose count is not 0, and says that blocks may be counted wrongly.

    Each part is a count with its words in the singular and in the plural.
    """
    found = [counted(count, one, many) for count, one, many in parts if count] or ["a list or count is wrong"]
    return f"{listed(found)}, so some blocks may be counted wrongly"


def _pages(threads: list[int], unsure: bool, pages: int) -> str:
    effect = _present((pages, "page has a wrong count or wrong lists", "pages have a wrong count or wrong lists"))
    return _moving("mimalloc", "a page", effect)(threads, unsure)


def _extents(threads: list[int], unsure: bool, extents: int, both: int, astray: int, slabs: int) -> str:
    effect = _present(
        (extents, "extent has no class or a temporary state", "extents have no class or a temporary state"),
        (both, "block is both cached and free", "blocks are both cached and free"),
        (astray, "cache entry points to no block", "cache entries point to no block"),
        (slabs, "slab has an inconsistent header", "slabs have an inconsistent header"),
    )
    return _moving("jemalloc", "extents, a slab or a cache", effect)(threads, unsure)


def _spans(threads: list[int], unsure: bool, locked: int, chains: int, astray: int, spans: int) -> str:
    effect = _present(
        (locked, "central list is locked", "central lists are locked"),
        (chains, "list of free blocks has a wrong length or end", "lists of free blocks have a wrong length or end"),
        (astray, "list entry points to no matching block", "list entries point to no matching block"),
        (spans, "span has a wrong count", "spans have a wrong count"),
    )
    return _moving("tcmalloc", "a span or a cache", effect)(threads, unsure)


def _in_malloc(threads: list[int]) -> str:
    named = _threads(threads, False) if threads else "a thread (id unknown) that holds an arena's lock"
    return f"{named} {_stopped(threads)} inside malloc: malloc may have changed only half of a list or size"


def _in_mallocng(slots: int) -> str:
    moving = f"; it was allocating or freeing {counted(slots, 'slot')}" if slots else ""
    return f"a thread was stopped inside mallocng: it may have changed only half of a group{moving}"


def _others(malloc: str, titles: list[str]) -> str:
    return f"{malloc}'s malloc holds nothing: the process uses {listed(titles)} instead"


def _other_malloc(malloc: str, name: str, path: str, evidence: str, idle: bool) -> str:
    where = f"{path}, {evidence}"
    in_place = f"malloc here is {name}'s ({where}), and {malloc}'s own arenas are empty"
    return (
        f"{in_place if idle else f'the process also contains {name} ({where})'}: gdbheap cannot list {name}'s blocks, "
        "and does not count them"
    )


def _unread(counts: dict[str, int]) -> str:
    told = ", ".join(f"{count:,} {kind}" for kind, count in sorted(counts.items()))
    return f"gdbheap cannot read the values of some types: {told} have no row"


def _arrays_not_there(count: int) -> str:
    if count == 1:
        return "an object that looks like an array or table could not be read, or has impossible fields: it is left out"
    return (
        f"{count:,} objects that look like arrays or tables could not be read, or have impossible fields: they are "
        "left out"
    )


SENTENCES: dict[RemarkId, str | Callable[..., Any]] = {
    "allocator-is-other": "{error}: the memory of {allocator} counts as other memory",
    "allocator-not-checked": "{error}: the blocks of {allocator} were not checked",
    "arrays-not-there": _arrays_not_there,
    "containers-cut-off": (
        "too many words look like containers of C++ or Rust: gdbheap left some out, so some containers have no name"
    ),
    "containers-not-told": (
        "there are more than {blocks:,} blocks, too many to look for all containers: only objects with vtables are "
        "recognised ('heap chunks --by=type' looks for all)"
    ),
    "contexts-cut-off": (
        "the memory contexts of PostgreSQL have too many blocks or free chunks: gdbheap left some out, so the sums are "
        "too low"
    ),
    "cut-graph": "not all references could be read: a holder has at least the bytes that are listed for it",
    "edges-left-out": (
        "there are more than {blocks:,} blocks: edges and retained sizes are left out (--edges adds them)"
    ),
    "edges-numbered": ("only about {most:,} references, those near the roots, have names: the others have numbers"),
    "first-paths": ("paths are shown for the first {most:,} of {blocks:,} blocks: no path is shown for the others"),
    "holders-not-known": "the holders are unknown: {error}",
    "jemalloc-blocks-moving": _moving(
        "jemalloc", "a slab or a cache", "a few free blocks may count as used, or still as cached"
    ),
    "jemalloc-extents-moving": _extents,
    "jemalloc-no-cache": (
        "no thread cache of the jemalloc in {module} was found: cached blocks count as used "
        "(MALLOC_CONF=tcache:false turns these caches off)"
    ),
    "jemalloc-of-huge-pages": (
        "{astray:,} bytes of blocks of the jemalloc in {module} belong to its huge page allocator (opt.hpa), whose "
        "tables were not found: free memory between these blocks counts as other memory"
    ),
    "locked": "memory is locked (mlock): the kernel takes back only the part at the end of the brk heap",
    "malloc-drawn-as-other": "{error}: malloc's memory is drawn as other memory",
    "malloc-holds-nothing": (
        "{malloc}'s malloc is empty, because the program has not called it, or uses an allocator that gdbheap does not "
        "recognise: the memory of an unrecognised allocator counts as other memory"
    ),
    "malloc-is-other": "{error}: malloc's memory counts as other memory",
    "malloc-moving": _in_malloc,
    "mallocng-moving": _in_mallocng,
    "mappings-alone": "{error}: memory is classified only by its mappings, so memory in use is unknown",
    "mimalloc-lists-moving": _moving("mimalloc", "a list of free blocks", "the blocks of this list count as used"),
    "mimalloc-not-known": (
        "{module} contains a mimalloc with an unknown layout ({nearest}): gdbheap cannot list its blocks, and its "
        "memory counts as other memory"
    ),
    "mimalloc-pages-moving": _pages,
    "no-paths": "no paths are shown: {error}",
    "no-python-calls": (
        "gdbheap does not recognise the interpreter's loop on the stack of a thread: the thread's C frames are left out"
    ),
    "no-types-drawn": "the picture has no types: {error}",
    "oldmalloc-moving": "a thread was stopped inside oldmalloc: some free chunks are in no bin yet",
    "other-malloc": _other_malloc,
    "others-hold-not-known": "other holders of the listed memory are unknown: {error}",
    "served-by-others": _others,
    "since-another": "{file} is a snapshot of another process: 'heap diff' compares the two",
    "tcmalloc-blocks-moving": _moving("tcmalloc", "a span or a cache", "a few free blocks may count as used"),
    "tcmalloc-no-lists": (
        "no central lists of tcmalloc were found in {module}: blocks in transfer caches count as used"
    ),
    "tcmalloc-spans-moving": _spans,
    "tls-cut-off": (
        "too many blocks look like contexts or connections of OpenSSL: gdbheap left some out, so these have no name"
    ),
    "too-many-arrays": "there are {count:,} arrays or tables: only the largest {most:,} are listed",
    "two-owners": "two owners claim the bytes at {address:#x}: the bytes do not count for {owner}, the second owner",
    "values-not-read": _unread,
    "zero-pages": (
        "zero pages cannot be distinguished from other pages: the lines add up to {bytes} bytes more than the "
        "kernel's Rss"
    ),
}
