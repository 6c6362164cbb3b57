"""Find out which database a connection of sqlite3 uses, in a file or in memory, and which thread opened the connection.

No symbols are needed: each pointer is proven by a pointer back. A connection begins with its ``sqlite3``, which has the
list of its databases, "main" and "temp". The Btree of "main" points back to the ``sqlite3``, and to its Pager. Since
3.32, SQLite stores the address of the Pager before the Pager's file name (src/pager.c, sqlite3PagerOpen).
"""

from __future__ import annotations

from collections.abc import Collection

from gdbheap._native import Space
from gdbheap.contents.python.names.type_names import TypeNames
from gdbheap.dataclass import dataclass
from gdbheap.errors import Fault
from gdbheap.layout.cpython import OB_TYPE, Release

__all__ = ["CONNECTION", "IN_FILE", "IN_MEMORY", "TEMPORARY", "Connection", "read_connection"]

CONNECTION = "sqlite3.Connection"
IN_FILE, IN_MEMORY, TEMPORARY = "file", "memory", "temporary"
# pysqlite_Connection: its sqlite3 follows the header. The word before its cache of statements is the pthread_t of the
# thread that opened it (Modules/_sqlite/connection.h, 3.6 to 3.14).
DATABASE, FIRST_FIELD, LAST_FIELD, WORD = 16, 40, 120, 8
CACHES = ("functools._lru_cache_wrapper", "sqlite3.Cache")
# struct sqlite3, struct Db, struct sqlite3_vfs (src/sqliteInt.h, src/sqlite.h.in; the same since 3.7).
LIST, COUNT, FIRST_TREE, SECOND, VFS_NAME = 32, 40, 8, 32, 24
NAMES = (b"main", b"temp")
# struct Pager: bytes that are 0 or 1. Two of them say whether its file is temporary, and whether it has no file.
FLAGS, IS_TEMPORARY, HAS_NO_FILE = slice(16, 20), 0, 3
# The most bytes of a Pager together with the data allocated after it, and the longest name.
PAGER_BYTES, LONGEST_NAME = 8 << 10, 4 << 10
# Before a file name lie the address of its Pager and four zero bytes.
BEFORE_NAME, ZEROS = 12, bytes(4)
MEMORY_NAME, MEMORY_VFS = b":memory:", b"memdb"


@dataclass(frozen=True)
class Connection:
    """A connection of sqlite3.

    ``kind``: IN_FILE, IN_MEMORY or TEMPORARY, or None if it cannot be proven. ``name``: the name of the file or
    database. ``ended``: whether the thread that opened it has ended; None if unknown."""

    kind: str | None
    name: str
    ended: bool | None


def read_connection(
    space: Space, release: Release, names: TypeNames, address: int, threads: Collection[int]
) -> Connection:
    """Return the facts about the connection at ``address`` that can be read.

    ``threads``: the pthread_t of all threads that exist.
    """
    if space.machine.word != WORD:
        return Connection(None, "", None)
    try:
        kind, name = _main_database(space, space.word(address + release.at(DATABASE)))
    except (Fault, OverflowError):
        kind, name = None, ""
    opener = _opener(space, release, names, address)
    return Connection(kind, name, None if opener is None or not threads else opener not in threads)


def _main_database(space: Space, database: int) -> tuple[str | None, str]:
    listed = space.word(database + LIST)
    own = (space.cstring(space.word(listed + place * SECOND), len(name) + 1) for place, name in enumerate(NAMES))
    if tuple(own) != NAMES:
        return None, ""
    tree = space.word(listed + FIRST_TREE)
    is_alone = space.u32(database + COUNT) == len(NAMES) and not space.word(listed + SECOND + FIRST_TREE)
    if space.word(tree) != database or not is_alone:
        # The memory may also belong to an attached database, or to temporary tables.
        return None, ""
    pager = space.word(space.word(tree + WORD))
    name = _name_in(space, pager)
    vfs = space.cstring(space.word(space.word(pager) + VFS_NAME), LONGEST_NAME)
    flags = space.read(pager + FLAGS.start, FLAGS.stop - FLAGS.start)
    if name is None or not set(flags) <= {0, 1}:
        return None, ""
    return _kind_of(name, vfs, flags), name.decode("utf-8", "replace")


def _kind_of(name: bytes, vfs: bytes, flags: bytes) -> str | None:
    if name == MEMORY_NAME or vfs == MEMORY_VFS or (flags[HAS_NO_FILE] and flags[IS_TEMPORARY]):
        return IN_MEMORY
    if not name and flags[IS_TEMPORARY]:
        return TEMPORARY
    return IN_FILE if name.startswith(b"/") and not any(flags[place] for place in (IS_TEMPORARY, HAS_NO_FILE)) else None


def _name_in(space: Space, pager: int) -> bytes | None:
    """Return the name of the Pager's file; None if there is none.

    The Pager points to this text, and the Pager's own address lies before it.
    """
    raw = space.read_available(pager, PAGER_BYTES)
    for word in space.machine.words_of(raw[: len(raw) - len(raw) % WORD]):
        at = word - pager
        if not BEFORE_NAME < at < len(raw) or raw[at - len(ZEROS) : at] != ZEROS:
            continue
        if space.machine.word_of(raw, at - BEFORE_NAME) == pager:
            return space.cstring(word, LONGEST_NAME)
    return None


def _opener(space: Space, release: Release, names: TypeNames, address: int) -> int | None:
    """Return the pthread_t of the thread that opened the connection; None if the field is not found."""
    try:
        raw = space.read(address + release.at(FIRST_FIELD), LAST_FIELD - FIRST_FIELD)
    except (Fault, OverflowError):
        return None
    words = space.machine.words_of(raw)
    for opener, cache in zip(words, words[1:]):
        try:
            is_cache = bool(opener and cache) and names.name(space.word(cache + release.at(OB_TYPE))) in CACHES
        except (Fault, OverflowError):
            continue
        if is_cache:
            return opener
    return None
