"""Find OpenSSL's contexts and connections (``SSL_CTX``, ``SSL``): each points to one of libssl's static tables of
methods.

Further pointers prove that a candidate is such an object. Each context and each connection points to its own ``CERT``,
whose first word points into the ``CERT`` itself. Each connection points to its context, all of them at the same offset.
Layouts: ``layout/tables/openssl.json``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from os.path import basename
from typing import Any

from gdbheap import _native
from gdbheap.allocators.allocator import Progress
from gdbheap.contents.content import Content
from gdbheap.dataclass import dataclass
from gdbheap.errors import Fault
from gdbheap.layout.shipped_tables import table
from gdbheap.machines.image import PF_X, PT_LOAD
from gdbheap.targets.elf import LoadedObject
from gdbheap.targets.ranges import holds, joined, within
from gdbheap.targets.target import Target

CONTEXT, CONNECTION = "OpenSSL SSL_CTX", "OpenSSL SSL"
TABLE = "openssl"
MAX_TABLE_BYTES = 4 << 20
CERT_BYTES, CERT_WORDS = 1 << 10, 17
# ASKED: the most addresses that are tested for a CERT. MAX_CANDIDATES: the most blocks that are tested. MAX_WORDS: the
# most words of all blocks in which every word is tested.
ASKED, MAX_CANDIDATES, MAX_WORDS = 1 << 19, 1 << 18, 1 << 24
# The most blocks that blocks_with() finds.
MAX_MATCHED = 1 << 19
# The most offsets of the pointer to a CERT that are remembered. Words at these offsets are tested before all words of a
# block.
MAX_PLACES = 8
HEADER = 16
"""The largest header of a block, in bytes. The size of a block includes its header, so this many bytes fewer are
read.
"""


@dataclass(frozen=True)
class _Candidate:
    """A block that may be a context or a connection. ``method``: the offset in bytes of its pointer to a table of
    methods. ``first``: its first word.
    """

    address: int
    size: int
    method: int
    first: int


class OpensslContent(Content):
    """The TLS contexts and connections of libssl. A Python program's blocks are not searched for them."""

    # Nearly every Python process has libssl loaded, but only a few of its blocks belong to libssl.
    beside_python = False

    @property
    def is_here(self) -> bool:
        """Whether libssl is loaded."""
        return self._library is not None

    @property
    def _library(self) -> LoadedObject | None:
        return next((loaded for loaded in self.target.objects if basename(loaded.path).startswith("libssl.so")), None)

    def named_blocks(self, heaps: _native.Heaps, progress: Progress | None) -> list[tuple[int, str]]:
        """Return (address of the block, its description) of each proven TLS context or connection.

        The description is CONTEXT or CONNECTION.
        """
        library = self._library
        methods = list(_methods(self.target, library)) if library is not None else []
        named, is_cut = _find_named(self.target, heaps, methods, progress) if methods else ([], False)
        if is_cut:
            self._around.note("tls-cut-off")
        return named


def _find_named(
    target: Target, heaps: _native.Heaps, methods: list[int], progress: Progress | None
) -> tuple[list[tuple[int, str]], bool]:
    """Return (address, description) of each proven TLS context or connection, and whether blocks were left out.

    The description is CONTEXT or CONNECTION.
    """
    facts = table(TABLE)
    rows = _native.blocks_with(heaps, methods, progress)
    is_cut = len(rows) >= MAX_MATCHED
    rows = [row for row in rows if facts["least_size"] <= row[1] <= facts["largest_size"]]
    is_cut = is_cut or len(rows) > MAX_CANDIDATES
    certs = _Certs(target)
    # The words of a block are not kept: a target can make any of its blocks look like a connection.
    certified = []
    for address, size, method in rows[:MAX_CANDIDATES]:
        words = _read(target, address, size)
        if words and certs.is_among(words):
            certified.append(_Candidate(address, size, method, words[0]))
    for form in facts["objects"]:
        named = _named(target, certified, form)
        if named:
            return named, is_cut or certs.is_cut
    return [], is_cut or certs.is_cut


def _methods(target: Target, library: LoadedObject) -> Iterator[int]:
    """Yield the addresses of libssl's tables of methods."""
    facts = table(TABLE)
    # The mappings of a core may not say which are executable.
    loads = [load for load in library.segments if load.type == PT_LOAD and load.flags & PF_X]
    code = joined(sorted((library.bias + one.address, library.bias + one.address + one.memory_size) for one in loads))
    first, least, versions = facts["method"]["functions"], facts["method"]["least_functions"], set(facts["versions"])
    left = MAX_TABLE_BYTES
    for mapping in library.mappings:
        in_code = within(code, mapping.start, mapping.end)
        if in_code or not mapping.readable or mapping.size > left:
            continue
        left -= mapping.size
        words = target.machine.words_of(target.space.read_available(mapping.start, mapping.end - mapping.start))
        for place, word in enumerate(words[: len(words) - first - least]):
            functions = place + first
            if word & 0xFFFF_FFFF in versions and all(holds(code, one) for one in words[functions : functions + least]):
                yield mapping.start + target.machine.word * place


def _read(target: Target, address: int, size: int) -> tuple[int, ...]:
    """Return the words of a block, or () if it cannot be read."""
    try:
        return target.machine.words_of(target.space.read(address, size - HEADER))
    except Fault:
        return ()


def _named(target: Target, certified: list[_Candidate], form: dict[str, Any]) -> list[tuple[int, str]]:
    """Return (address, description) of each object in ``certified``; an empty list if the layout ``form`` does not fit.

    The description is CONTEXT or CONNECTION.
    """
    starts = form["connection_starts"]
    starts = set(table(TABLE)["versions"] if starts == "versions" else starts)
    # Since 3.2 an object has two adjacent pointers to methods; the first one is to the initial methods.
    places = {form["connection_method"], form["connection_method"] - target.machine.word} - {form["context_method"]}
    if form["context_method"] == form["connection_method"]:
        places = {form["connection_method"]}
    connections = [found for found in certified if found.method in places and found.first & 0xFFFF_FFFF in starts]
    known = {found.address for found in connections}
    contexts = [found for found in certified if found.method == form["context_method"] and found.address not in known]
    if not contexts or not all(_begins_context(target, found) for found in contexts):
        return []
    if not _is_at_one_offset(target, connections, {found.address for found in contexts}):
        return []
    return [(found.address, CONTEXT) for found in contexts] + [(found.address, CONNECTION) for found in connections]


def _is_at_one_offset(target: Target, connections: list[_Candidate], contexts: set[int]) -> bool:
    """Return whether there is an offset at which every connection has a pointer to one of the ``contexts``."""
    places: Sequence[int] = range(table(TABLE)["largest_size"] // target.machine.word)
    for found in connections:
        words = _read(target, found.address, found.size)
        places = [place for place in places[: len(words)] if words[place] in contexts]
        if not places:
            return False
    return True


def _begins_context(target: Target, found: _Candidate) -> bool:
    """Return whether the block's first word can begin a context: a pointer to methods or, since 3.0, a library context
    or zero.
    """
    return found.method == 0 or found.first == 0 or target.mappings.find(found.first) is not None


class _Certs:
    """Tests whether a CERT lies at an address. Each address is tested once, and at most ASKED addresses in total.

    The first word of a CERT points into the CERT itself or, since 3.2, equals another word of the CERT.
    ``is_cut``: whether words were not tested, because of this limit or MAX_WORDS.
    """

    def __init__(self, target: Target) -> None:
        self._target = target
        self._known: dict[int, bool] = {}
        self._places: list[int] = []
        self._words_left = MAX_WORDS
        self.is_cut = False

    def is_among(self, words: Sequence[int]) -> bool:
        """Return whether any of the words of a block points to a CERT.

        Objects of one kind have the pointer at the same offset, so the offsets of earlier hits are tested first.
        """
        if any(place < len(words) and self._is_cert(words[place]) for place in self._places):
            return True
        if len(words) > self._words_left:
            self.is_cut = True
            return False
        self._words_left -= len(words)
        for place, word in enumerate(words):
            if self._is_cert(word):
                if len(self._places) < MAX_PLACES:
                    self._places.append(place)
                return True
        return False

    def _is_cert(self, word: int) -> bool:
        if word % 16 or not word:
            return False
        if word not in self._known:
            if len(self._known) >= ASKED:
                self.is_cut = True
                return False
            self._known[word] = self._target.mappings.find(word) is not None and self._read(word)
        return self._known[word]

    def _read(self, word: int) -> bool:
        size = self._target.machine.word
        raw = self._target.space.read_available(word, CERT_WORDS * size)
        first, *others = self._target.machine.words_of(raw) or [0]
        return bool(first) and first % size == 0 and (word < first < word + CERT_BYTES or first in others)
