"""Find OpenSSL's contexts and connections (``SSL_CTX``, ``SSL``): each points to one of libssl's static tables of
methods.

Further pointers prove that a candidate is such an object. Each context and each connection points to its own ``CERT``,
whose first word points into the ``CERT`` itself. Each connection points to its context, all of them at the same offset.
Layouts: ``layout/tables/openssl.json``.
"""

from __future__ import annotations

from collections.abc import Iterator
from os.path import basename
from typing import Any

from gdbheap import _native
from gdbheap.allocators.allocator import Progress
from gdbheap.contents.content import Content
from gdbheap.dataclass import dataclass
from gdbheap.errors import Fault
from gdbheap.layout.tables import table
from gdbheap.machines.image import PF_X, PT_LOAD
from gdbheap.targets.elf import LoadedObject
from gdbheap.targets.ranges import holds, joined, within
from gdbheap.targets.target import Target

CONTEXT, CONNECTION = "OpenSSL SSL_CTX", "OpenSSL SSL"
TABLE = "openssl"
MAX_TABLE_BYTES = 4 << 20
CERT_BYTES, CERT_WORDS = 1 << 10, 17
# The most addresses for which gdbheap tests whether a CERT lies there.
ASKED = 1 << 20
HEADER = 16
"""The most bytes of a block's header. That many bytes at the end of a block are not read."""


@dataclass(frozen=True)
class _Found:
    """A block that may be a context or a connection. ``method``: the offset in bytes of its pointer to a table of
    methods.
    """

    address: int
    words: list[int]
    method: int


class OpensslContent(Content):
    """The contexts and connections of libssl."""

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
        """Return (address of the block, CONTEXT or CONNECTION) of each proven context and connection."""
        library = self._library
        methods = list(_methods(self.target, library)) if library is not None else []
        return _find_named(self.target, heaps, methods, progress) if methods else []


def _find_named(
    target: Target, heaps: _native.Heaps, methods: list[int], progress: Progress | None
) -> list[tuple[int, str]]:
    facts = table(TABLE)
    rows = [
        row
        for row in _native.blocks_with(heaps, methods, progress)
        if facts["least_size"] <= row[1] <= facts["largest_size"]
    ]
    candidates = [found for row in rows if (found := _read(target, *row)) is not None]
    certs = _Certs(target)
    certified = [found for found in candidates if certs.has_one(found)]
    for form in facts["objects"]:
        named = _named(target, certified, form)
        if named:
            return named
    return []


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
        words = _words(target, target.space.read_available(mapping.start, mapping.end - mapping.start))
        for place, word in enumerate(words[: len(words) - first - least]):
            functions = place + first
            if word & 0xFFFF_FFFF in versions and all(holds(code, one) for one in words[functions : functions + least]):
                yield mapping.start + target.machine.word * place


def _words(target: Target, raw: bytes) -> list[int]:
    unpack = target.machine.structure("P").iter_unpack
    return [word for (word,) in unpack(raw[: len(raw) - len(raw) % target.machine.word])]


def _read(target: Target, address: int, size: int, offset: int) -> _Found | None:
    try:
        return _Found(address, _words(target, target.space.read(address, size - HEADER)), offset)
    except Fault:
        return None


def _named(target: Target, certified: list[_Found], form: dict[str, Any]) -> list[tuple[int, str]]:
    """Return (address, CONTEXT or CONNECTION) of each object in ``certified``; an empty list if the layout ``form``
    does not fit.
    """
    starts = form["connection_starts"]
    starts = set(table(TABLE)["versions"] if starts == "versions" else starts)
    # Since 3.2 an object has two adjacent pointers to methods; the first one is to the initial methods.
    places = {form["connection_method"], form["connection_method"] - target.machine.word} - {form["context_method"]}
    if form["context_method"] == form["connection_method"]:
        places = {form["connection_method"]}
    connections = [found for found in certified if found.method in places and found.words[0] & 0xFFFF_FFFF in starts]
    known = {found.address for found in connections}
    contexts = [found for found in certified if found.method == form["context_method"] and found.address not in known]
    if not contexts or not all(_begins_context(target, found) for found in contexts):
        return []
    addresses = {found.address for found in contexts}
    held = [{place for place, word in enumerate(found.words) if word in addresses} for found in connections]
    # All connections must have the pointer to their context at the same offset.
    if held and not set.intersection(*held):
        return []
    return [(found.address, CONTEXT) for found in contexts] + [(found.address, CONNECTION) for found in connections]


def _begins_context(target: Target, found: _Found) -> bool:
    """Return whether the block's first word can begin a context: a pointer to methods or, since 3.0, a library context
    or zero.
    """
    return found.method == 0 or found.words[0] == 0 or target.mappings.find(found.words[0]) is not None


class _Certs:
    """Tests whether a CERT lies at an address. The first word of a CERT points into the CERT itself or, since 3.2,
    equals another word of the CERT. Each address is tested once, and at most ASKED addresses in total."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._known: dict[int, bool] = {}

    def has_one(self, found: _Found) -> bool:
        """Return whether any word of the block points to a CERT."""
        return any(self._is_cert(word) for word in found.words if word and word % 16 == 0)

    def _is_cert(self, word: int) -> bool:
        if word not in self._known:
            if len(self._known) >= ASKED:
                return False
            self._known[word] = self._target.mappings.find(word) is not None and self._read(word)
        return self._known[word]

    def _read(self, word: int) -> bool:
        size = self._target.machine.word
        first, *others = _words(self._target, self._target.space.read_available(word, CERT_WORDS * size)) or [0]
        return bool(first) and first % size == 0 and (word < first < word + CERT_BYTES or first in others)
