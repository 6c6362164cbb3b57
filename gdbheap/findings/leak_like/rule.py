"""One container with nearly all objects of a type and most of the memory. At one moment, a leak looks like this."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import field, replace

from gdbheap import _native
from gdbheap.answers.accounting.absent import absent_under
from gdbheap.contents.python.objects.census import Estimate, Objects, Owner
from gdbheap.dataclass import dataclass
from gdbheap.errors import Fault
from gdbheap.findings.container_age import Age, age_of, is_shared
from gdbheap.findings.finding import MAX_LIKELY_GRAPH_BLOCKS, UNLISTED, Evidence, Figures, Finding
from gdbheap.findings.holder.rule import MainHolder
from gdbheap.layout.cpython import OB_TYPE
from gdbheap.machines.machine import LOWEST_ADDRESS

MIN_OBJECTS = 25_000
MIN_SHARE_OF_TYPE, MIN_SHARE_OF_USED = 0.8, 0.5
# The least share of the memory for which the graph is built.
#
# A container may be several times as large together with all memory to which only its objects refer.
MIN_SHARE_FOR_GRAPH = 0.15
# The smallest share of the sampled objects that must have no other reference.
MIN_SHARE_OF_ONLY_REFERENCES = 0.9
MAX_BUFFERS = 16
# A sample consists of groups of neighbouring words, because entries of containers are one, two or three words long.
SAMPLED_GROUPS, GROUP_WORDS = 64, 6
# The offset of the field with a container's length, by the role of the container's buffer.
LENGTHS = {"items": 16, "keys": 16, "table": 24}


@dataclass(frozen=True)
class LeakLike(Figures):
    """A container at ``address``, of the type ``container``, that has nearly all objects of the type ``type``.

    ``count``: the number of these objects; ``kept``: how many of them the container has. ``used``: all bytes in use.
    ``bytes``: the bytes that dropping the container would free. ``path``: how to reach it in Python, if the graph was
    built. ``age_is_known``: whether it is known when the container last changed. ``holder``: the same container among
    the main holders, or None."""

    ids = ("leak-like",)
    address: int
    kept: int
    count: int
    used: int
    bytes: int = field(metadata=UNLISTED)
    container: str
    type: str
    path: str | None
    age_is_known: bool
    holder: MainHolder | None = field(default=None, metadata=UNLISTED)


def with_holders(found: Sequence[Finding], rows: Sequence[MainHolder]) -> list[Finding]:
    """Return the findings. If the container of a finding is one of the main holders, this holder is added to the
    finding.
    """
    by_address = {row.address: row for row in rows if row.address is not None}
    return [_with_holder(finding, by_address) for finding in found]


def _with_holder(finding: Finding, rows: Mapping[int, MainHolder]) -> Finding:
    figures = finding.figures
    row = rows.get(figures.address) if isinstance(figures, LeakLike) else None
    return finding if row is None else replace(finding, figures=replace(figures, holder=row))  # type: ignore[type-var]


@dataclass(frozen=True)
class SampledBuffer:
    """A large buffer, of which some pointer-sized words were read to estimate how many objects only this buffer refers
    to.

    ``counts``: the estimated number of such objects, by the address of their type."""

    address: int
    size: int
    counts: dict[int, int]


@dataclass(frozen=True)
class OwningContainer:
    """A container that owns a sampled buffer. The container keeps ``kept`` of the ``count`` objects of ``type`` alive.

    ``bytes``: the bytes that dropping the container would free.
    """

    owner: Owner
    type: str
    kept: int
    count: int
    bytes: int
    path: str | None = None


def find(evidence: Evidence) -> list[Finding]:
    """Return a list with a finding about the container that would free the most memory.

    The list is empty if the container has too few objects or bytes, or has stopped growing.
    """
    if evidence.objects is None:
        return []
    kinds = {row.address: row for row in evidence.estimates if row.count >= MIN_OBJECTS // 2}
    buffers = evidence.largest_blocks(MIN_OBJECTS * evidence.heap.target.machine.word, MAX_BUFFERS)
    # A buffer whose pages are still shared since a fork() has not grown since then.
    buffers = [(start, size) for start, size in buffers if not is_shared(evidence.heap, start, start + size)]
    samples = [sample for buffer in buffers if (sample := _look(evidence.objects, kinds, buffer))]
    if not samples:
        return []
    census = evidence.objects.census([sample.address for sample in samples])
    used = sum(store.used.bytes for store in census.stores)
    found = [container for sample in samples for container in _containers(evidence, census, sample)]
    most = max(found, key=lambda container: container.bytes, default=None)
    if most is None or not evidence.worth(most.bytes) or most.bytes < MIN_SHARE_OF_USED * used:
        return []
    age = age_of(evidence.heap, evidence.objects, most.owner.address, str(most.owner.type))
    return [] if age.has_stopped(most.kept) else [_finding(evidence, most, used, age)]


def _finding(evidence: Evidence, most: OwningContainer, used: int, age: Age) -> Finding:
    """Return the finding about a container. It is doubtful if nothing shows when the container last changed."""
    address, known = most.owner.address, age.is_known
    figures = LeakLike(
        address, most.kept, most.count, used, most.bytes, str(most.owner.type), most.type, most.path, known
    )
    commands = [] if most.path else evidence.line("why", f"{address:#x}")
    return Finding("leak-like", most.bytes, figures, commands, doubtful=not known)


def _look(objects: Objects, kinds: dict[int, Estimate], buffer: tuple[int, int]) -> SampledBuffer | None:
    """Return a sample of a buffer if nearly all objects of a type have no other reference than the buffer's; otherwise
    None."""
    address, size = buffer
    hits: dict[int, list[int]] = {}
    read = 0
    unit = objects.target.machine.word
    for word, following in _words(objects, address, size):
        read += 1
        with suppress(Fault, OverflowError):
            is_place = word > LOWEST_ADDRESS and word % unit == 0
            kind = objects.target.space.word(word + objects.release.at(OB_TYPE)) if is_place else 0
            # The hash of a key such as id(x) is the address of an object that the dict does not refer to.
            if kind in kinds and objects.repr.text(following) != str(word):
                hits.setdefault(kind, []).append(word)
    scale = size / unit / max(read, 1)
    counts = {kind: int(scale * len(words)) for kind, words in hits.items() if _are_own(objects, words)}
    least = {kind: max(MIN_OBJECTS, MIN_SHARE_OF_TYPE**2 * kinds[kind].count) for kind in counts}
    enough = any(count >= least[kind] for kind, count in counts.items())
    return SampledBuffer(address, size, counts) if enough else None


def _words(objects: Objects, address: int, size: int) -> Iterator[tuple[int, int]]:
    """Yield sampled pointer-sized words of a buffer, each with the word that follows."""
    machine = objects.target.machine
    for group in range(SAMPLED_GROUPS):
        at = address + group * (size // SAMPLED_GROUPS) // machine.word * machine.word
        words = machine.words_of(objects.target.space.read_available(at, (GROUP_WORDS + 1) * machine.word))
        yield from zip(words, words[1:])


def _are_own(objects: Objects, words: list[int]) -> bool:
    """Return whether nearly all ``words`` are the addresses of different objects that have no other reference."""
    own = 0
    for word in set(words):
        with suppress(Fault):
            own += objects.release.reference_count(objects.target.space, word) == 1
    return own >= MIN_SHARE_OF_ONLY_REFERENCES * len(words)


def _containers(evidence: Evidence, census: _native.Census, sample: SampledBuffer) -> Iterator[OwningContainer]:
    """Yield the container that owns a sampled buffer, with the largest type of which it holds nearly all objects."""
    objects = evidence.objects
    owner = objects.owners_of([sample.address])[sample.address] if objects is not None else None
    if objects is None or owner is None or owner.type is None or owner.role not in LENGTHS:
        return
    length = _length(objects, owner)
    rows = _rows(objects, census, sample, owner)
    kept = {kind: min(length, count) for kind, (count, _size) in rows.items()}
    sizes = {kind: kept[kind] * size // count for kind, (count, size) in rows.items()}
    nearly = [kind for kind in rows if kept[kind] >= max(MIN_OBJECTS, MIN_SHARE_OF_TYPE * rows[kind][0])]
    if nearly:
        kind = max(nearly, key=lambda kind: sizes[kind])
        size, path = sample.size + sum(sizes.values()), None
        if size >= MIN_SHARE_FOR_GRAPH * sum(store.used.bytes for store in census.stores):
            size, path = _by_graph(evidence, owner, size)
        yield OwningContainer(owner, objects.names.name(kind), kept[kind], rows[kind][0], size, path)


def _length(objects: Objects, owner: Owner) -> int:
    """Return the number of items in a container, from its own field; 0 if it cannot be read."""
    try:
        return objects.target.space.word(owner.address + objects.release.at(LENGTHS[owner.role]))
    except Fault:
        return 0


def _rows(objects: Objects, census: _native.Census, sample: SampledBuffer, owner: Owner) -> dict[int, tuple[int, int]]:
    """Return, for each sampled type, the number and the bytes of its objects, including their buffers but not the
    sampled buffer.
    """
    found = {}
    for row in census.rows:
        if row.address in sample.counts and row.live.count:
            own = sample.size if objects.names.name(row.address) == owner.type else 0
            found[row.address] = (row.live.count, row.live.bytes + sum(held.bytes for held in row.owned) - own)
    return found


def _by_graph(evidence: Evidence, owner: Owner, least: int) -> tuple[int, str | None]:
    """Return the resident bytes that a container retains, and the path to it in Python, both from the graph.

    If the graph shows fewer than ``least`` retained bytes, ``least`` is used. Without a graph, return ``least`` and
    None.
    """
    references = evidence.graph_of(MAX_LIKELY_GRAPH_BLOCKS)
    node = references.find(owner.address) if references is not None else None
    if references is None or node is None:
        return least, None
    path = evidence.heap.python.paths.path(references.graph.chain(node.id)).expression
    (retained,) = references.graph.retained([node.id])
    absent = absent_under(evidence.heap, lambda number: number if number == node.id else None)[node.id]
    return max(least, retained) - absent, path
