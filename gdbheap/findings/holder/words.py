"""Texts of the finding ``holder``: one holder of at least a quarter of RSS."""

from __future__ import annotations

import re

from gdbheap.contents.python.names.packages import ONE_FILE
from gdbheap.contents.python.objects.database_connections import CONNECTION, IN_FILE, IN_MEMORY, TEMPORARY
from gdbheap.findings.holder.rule import (
    BREAK,
    BUFFERING_HANDLER,
    DATABASE,
    ENDED,
    FILE,
    LABEL,
    LEFT,
    LOG_HANDLER,
    OPENED,
    OUTSIDE,
    SHARED_FILE,
    SHARED_MEMORY,
    STACK,
    STATIC,
    STORAGE,
    UNJOINED,
    WRITTEN,
    WRITTEN_FILE,
    LargeHolder,
    MainHolder,
)  # fmt: skip
from gdbheap.graph.paths import BLOCK
from gdbheap.report.text.numbers import size_text
from gdbheap.report.words.finding_words import Words
from gdbheap.report.words.main_holders import described, freed, freed_text, names_of, others_of, readable

__all__ = ["WORDS", "remedy_of"]

LRU_CACHE = "functools._lru_cache_wrapper"
# Remedies by type of object, and for types whose memory belongs to a C library.
REMEDIES = {
    LRU_CACHE: "give the cache a smaller maxsize, or call its cache_clear()",
    "ssl.SSLContext": "create one context and use it for all connections",
}
OF_LIBRARIES = {
    "sqlite3.Connection": "PRAGMA cache_size limits the page cache of a database file, and PRAGMA shrink_memory "
    "frees the cache. In a database in memory, DELETE and VACUUM free rows",
}
# Remedies for connections by the proven kind of database.
OF_DATABASES = {
    IN_FILE: "PRAGMA cache_size limits the page cache of a connection, and PRAGMA shrink_memory and close() free the "
    "cache: the data stays in the file",
    IN_MEMORY: "this is the data of the database itself: DELETE and VACUUM shrink the database, close() drops it",
    TEMPORARY: "PRAGMA shrink_memory frees the page cache of a connection, close() drops the database",
}
OPENER_ENDED = (
    ". The threads that opened these connections have ended: drop the last reference to each unused connection, "
    "which closes the connection"
)
# Remedies by the kind of trait.
OF_TRAITS = {
    LABEL: "use labels with few values, such as the route instead of the path",
    LOG_HANDLER: "remove the handler, or let it drop the text that was written",
    BUFFERING_HANDLER: "remove the handler, or let it drop its records; a MemoryHandler needs a target (setTarget()) "
    "and a small capacity: without a target, its flush() drops nothing",
    WRITTEN_FILE: "close() the mapping when it is no longer used, or map the file shared (ACCESS_WRITE): the process "
    "has its own copy of each page that it wrote in a private mapping, and the kernel cannot drop these copies",
    SHARED_MEMORY: "count shared memory once for all processes that map it, as PSS does; close() it in processes "
    "that no longer use it",
    SHARED_FILE: "close() removes the pages from the RSS of this process; the kernel writes them back and drops them "
    "when memory is short",
}
# Remedies for these types if most of the memory is Python objects to which the library refers.
OF_CALLBACKS = {
    "sqlite3.Connection": "close() the connection, or drop the objects to which its registered functions and "
    "callbacks refer: most of this memory is Python objects, which no PRAGMA frees",
}
# Remedies by the beginning of the holder's name.
OF_NAMES = {
    "the exception that ": "do long work after the except block: until the block ends, the exception keeps its "
    "arguments, and its traceback keeps the variables of all functions that were running",
    "messages of a channel": "limit the length of the channel, so that senders wait, and find out why its receivers "
    "lag: 'heap threads --c-frames' shows where each thread is",
    "'lctx' in ": "'redis-cli SCRIPT FLUSH' drops the scripts; always call EVAL with the same text, and pass the "
    "differences as KEYS and ARGV",
    "gc.garbage": "remove __del__() from these classes, or use weakref for one reference in each cycle: the collector "
    "of Python 2 keeps objects of cycles with __del__() here, and gc.DEBUG_SAVEALL keeps all that it finds",
    "weakref.finalize._registry": "pass a callback that does not refer to the watched object: a bound method of the "
    "object, or the object as an argument, keeps it alive for ever",
    "logging.Logger.manager.loggerDict": "use one logger with a LoggerAdapter for each job: the manager keeps all "
    "loggers",
    "lxml.etree._ParserDictionaryContext": "use few different names for elements and attributes, and put variable "
    "data into values: "
    "libxml2 keeps every name until the process ends; parse untrusted documents in short-lived processes",
    "matplotlib._pylab_helpers.Gcf.figs": "call plt.close(figure) when a figure is no longer used",
    "objects in the V8 (JavaScript) heap": "drop the references to the Buffers: process.memoryUsage().arrayBuffers "
    "is their total size, and a heap snapshot shows which objects refer to them",
    "objects in the Java heap": "drop the references to direct ByteBuffers (-XX:MaxDirectMemorySize limits them), and "
    "call end() on each Deflater and Inflater that is no longer used: a garbage collection frees all of these "
    "objects to which nothing refers",
}
# Remedies by the beginning of the type that has most of the holder's bytes.
OF_PARTS = {
    "memory of destroyed C++ objects": "drop each std::weak_ptr whose expired() is true, or make the objects with "
    "std::shared_ptr<T>(new T): the single block that std::make_shared allocates stays until its last std::weak_ptr "
    "is gone",
    "mmap.mmap": "close() each mmap that is no longer used: the object keeps all its pages mapped",
    "prometheus_client.": OF_TRAITS[LABEL],
    "ssl.SSLContext": REMEDIES["ssl.SSLContext"],
}
# Remedies by the kind of memory that comes from no allocator.
OF_KINDS = {
    STATIC: "make this data smaller, or allocate it when needed: it stays while the program or library is loaded",
    STACK: "limit the recursion, or allocate large local variables with malloc() instead of on the stack: a "
    "stack's pages stay until its thread ends",
    LEFT: "limit the recursion, or allocate large local variables with malloc() instead of on the stack: these pages "
    "stay until the thread ends, or calls madvise(MADV_DONTNEED) below its stack pointer",
    STORAGE: "use fewer threads, or allocate this data only in threads that need it: each thread has its own copy",
    WRITTEN: "munmap() the mapping when it is no longer used: the process owns a copy of each page that it wrote",
    BREAK: "find the code that calls sbrk() or brk(): only that code can return this memory, malloc cannot",
    FILE: "munmap() or madvise(MADV_DONTNEED) removes these pages from the RSS of this process; the kernel drops clean "
    "pages when memory is short",
    UNJOINED: "call pthread_join() or pthread_detach() for each thread: the C library keeps the stack of an ended "
    "thread until then, and each stack also takes its whole size of address space",
    ENDED: "new threads reuse these stacks; start fewer threads at the same time",
}
OF_MODULES = "import the file once, or delete the modules from sys.modules"


# Remedies by an edge on the path to the largest block.
OF_WAYS = {
    ".__traceback__": "keep the text of an exception, or exception.with_traceback(None): a traceback keeps the frames "
    "of all functions that were running, with their variables",
    "has it as key ": "use an id or a name as the key, or a weakref.WeakKeyDictionary: the keys of the dict keep this "
    "memory",
    ".__self__": "remove each listener once its object is no longer used, or keep it as a weakref.WeakMethod: a bound "
    "method keeps its object alive",
}
# The deque of a queue, by its type and the end of its path.
DEQUE, IN_QUEUE = "collections.deque", (".queue", "._queue")
OF_QUEUES = "give the queue a maxsize, so that producers wait, or find out why its consumers lag"
THROUGH = "through "
ON_STACK = re.compile(r"^(stack|registers) of thread \d+")
# Remedies by the kind of tasks and suspended functions that hold most of the memory.
WAITING = "limit how many {} run at once, or let their waits time out; 'heap tasks' shows where they wait"
STOPPED = "{}: each keeps its variables; 'heap tasks' shows where they stopped"
OF_TASKS = {
    "task": WAITING.format("tasks"),
    "greenlet": WAITING.format("greenlets"),
    "coroutine": STOPPED.format("await or close() coroutines that nobody runs"),
    "generator": STOPPED.format("exhaust or close() generators that are not finished"),
    "async_generator": STOPPED.format("exhaust or aclose() asynchronous generators that are not finished"),
}
NO_NAMES = "the name of the variable is unknown: look at the source"
LIMIT = "if this is more than the program needs, set a limit or drop data that is no longer used"
ROOM = "call shrink_to_fit() on each std::vector in it that does not grow again (see the finding below); "
SHARED = "if this is more than the program needs, drop unused data from all its holders"
FORKED = (
    "this process was forked from {0}. Each use of an object that is shared by both processes copies its page. Check "
    "how much was copied, and what helps, before you set a limit or drop anything"
)
# Texts for the memory of a more specific finding, by the finding's id.
SAME = {"small-views": "the views above"}


def _text(figures: LargeHolder) -> str:
    holder = figures.holder
    what = described(holder)
    way = f"; {_largest(readable(holder.way))}" if holder.way else ""
    least = "at least this much; " if holder.at_least else ""
    if holder.kind in OUTSIDE:
        return f"{holder.path}{f' ({what})' if what else ''}, not from an allocator"
    if figures.left_over:
        return (
            f"{least}in use, or lost: reached from {holder.path} ({what}); most of it is reached only by tagged "
            "pointers, or by pointers after the last item of a container"
        )
    room = f"; up to {size_text(figures.room)} of it may be unused capacity of containers" if figures.room else ""
    return f"{least}in use, held by {holder.path}{f' ({what})' if what else ''}{way}{room}{_others(holder)}"


def _largest(way: str) -> str:
    """Return a text that says how a holder reaches its largest block: by named steps, or only through C blocks."""
    through = way.removeprefix("holds it, ")
    if through.startswith(THROUGH):
        return f"its largest block is reached {through}"
    return f"its largest block is at {way.replace(' holds it, through', ', through')}"


def _others(holder: MainHolder) -> str:
    """Return the other holders of the same memory as text, and the bytes that dropping one or all of them frees."""
    if holder.names:
        return f"; {names_of(holder)}: it stays until no name refers to it"
    if holder.alone or holder.retained is None:
        return ""
    whole = "" if holder.together is None else f", dropping all of them frees {freed_text(holder, holder.together)}"
    return f"; {others_of(holder)}: dropping this holder alone frees {freed(holder)}{whole}"


def _advice(figures: LargeHolder) -> str:
    holder, same = figures.holder, SAME.get(figures.same or "")
    if same is not None:
        return f"this memory belongs to {same}: the same remedy helps"
    if figures.left_over:
        return (
            "free each item that is removed from a container when the program no longer needs the item. 'heap "
            "unreachable' lists these blocks by size"
        )
    remedy = remedy_of(figures.holder) or OF_TASKS.get(figures.holder.task_kind or "")
    if remedy is None and figures.parent is not None:
        return FORKED.format(figures.parent)
    limit = f"{ROOM if figures.room else ''}{LIMIT if holder.alone or holder.may_be_alone else SHARED}"
    return remedy or (f"{limit}; {NO_NAMES}" if ON_STACK.search(figures.holder.path) else limit)


def remedy_of(holder: MainHolder) -> str | None:
    """Return the remedy for a holder of a known kind; None for a holder of any other kind."""
    most = holder.parts[0].what if holder.parts else ""
    # Blocks to which only C code refers count for the object that owns them.
    is_of_library = most.startswith(BLOCK) or most in OF_LIBRARIES
    known = [OF_TRAITS[trait.kind] for trait in holder.traits if trait.kind in OF_TRAITS]
    known += _of_databases(holder) if is_of_library else []
    of_kind = {**REMEDIES, **(OF_LIBRARIES if is_of_library else OF_CALLBACKS)}
    known += [_of_cache(holder)] if holder.what == LRU_CACHE else []
    known += [of_kind[holder.what]] if holder.what in of_kind else []
    known += [OF_KINDS[holder.kind]] if holder.kind in OF_KINDS else []
    known += [OF_MODULES] if holder.kind == ONE_FILE else []
    named = holder.path.split(": ")
    known += [text for name, text in OF_NAMES.items() if any(part.startswith(name) for part in named)]
    known += [OF_QUEUES] if holder.what == DEQUE and holder.path.endswith(IN_QUEUE) else []
    known += [text for edge, text in OF_WAYS.items() if edge in (holder.way or "")]
    known += [text for name, text in OF_PARTS.items() if most.startswith(name)]
    return known[0] if known else None


def _of_cache(holder: MainHolder) -> str:
    """Return the advice about an lru_cache.

    The cache of a method keeps objects alive, because they are the first arguments of its calls.
    """
    remedy = REMEDIES[LRU_CACHE] if (holder.limit or 0) >= 0 else "give the cache a maxsize, or call its cache_clear()"
    owner = holder.path.rpartition(".")[0].rpartition(".")[2]
    is_method = owner and any(part.what.rpartition(".")[2] == owner for part in holder.parts)
    also = f": the cache of a method also keeps each {owner} on which the method was called"
    return f"{remedy}{also if is_method else ''}"


def _of_databases(holder: MainHolder) -> list[str]:
    """Return the remedy if all connections are proven to have databases of one kind, or their threads have ended."""
    kinds = {trait.example for trait in holder.traits if trait.kind == DATABASE}
    ended = OPENER_ENDED if any(trait.kind == OPENED for trait in holder.traits) else ""
    told = OF_DATABASES.get(kinds.pop() or "") if len(kinds) == 1 else None
    if not holder.traits or (told is None and not ended):
        return []
    return [f"{told or OF_LIBRARIES[CONNECTION]}{ended}"]


WORDS = Words(LargeHolder, _text, _advice)
