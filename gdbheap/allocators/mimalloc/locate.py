"""Find every mimalloc of one target without symbols: CPython's own copy, a library, or one linked into a module.

A target may have several. Up to 2.x, segments lie at multiples of 32 MiB. Each segment states its number of slices and
is covered without gaps by a table of slices. Its cookie xor its address is a constant for all segments of one mimalloc.
Since 3.0, a word of static data points to a map that has the page of each slice; the map's first word points to the
map's end. The release is determined from a sample of pages: their lists and counts must fit a known layout of the
structures.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import field, replace

from gdbheap import _native
from gdbheap.dataclass import dataclass
from gdbheap.errors import Fault
from gdbheap.layout.debug_offsets import windows
from gdbheap.targets.elf import LoadedObject
from gdbheap.targets.mappings import Mappings
from gdbheap.targets.ranges import Ranges, containing, holds, joined
from gdbheap.targets.target import Target

SEGMENT = 32 << 20
MAX_BLOCKS = 1 << 20
# mi_arena_t of 2.x has {uint8_t *start; size_t block_count, field_count} within its first words.
ARENA_WORDS = 12
SLICES_IN_FIELD = 64
# The most maps of pages that are tried: a module has one, but hostile data can point to any number.
MAX_MAPS = 64
# If at least this many entries of a possible map point to memory, it is a map of pages, even if the pages fit no known
# layout.
SOME = 8


@dataclass(frozen=True)
class LocatedMimalloc:
    """One mimalloc of a target.

    ``form``: the layout of its structures. ``places``: the addresses of its segments, or of its map of pages.
    ``cookies``: the cookies of its segments, by the segment's address. ``cookie``: the cookie that most segments share.
    ``cached``: freed segments that mimalloc keeps for later. ``arenas``: the areas from which segments are cut.
    ``module``: the module whose static data points to it, or None if unknown. ``fit``: how well a sample of pages fits
    the layout."""

    form: _native.MimallocForm
    places: list[int]
    fit: _native.FormFit
    cookie: int = 0
    cookies: dict[int, int] = field(default_factory=dict)
    cached: Ranges = field(default_factory=list)
    arenas: list[tuple[int, int]] = field(default_factory=list)
    module: LoadedObject | None = None

    @property
    def padded(self) -> bool:
        """Whether blocks record the size that the program asked for, as in secure and debug builds."""
        return self.fit.padded > 0


def segment_ranges(mappings: Mappings) -> Ranges:
    """Return the mappings in which segments may lie: private, anonymous, readable and writable."""
    return [
        (mapping.start, mapping.end)
        for mapping in mappings
        if mapping.anonymous and mapping.private and mapping.writable and mapping.readable
    ]


@dataclass(frozen=True)
class UnknownMap:
    """A map of pages, in a module's static data, that fits no known layout. ``nearest`` says which layout fits best."""

    module: LoadedObject
    nearest: str


@dataclass(frozen=True)
class LocatedMimallocs:
    """The mimallocs of a target (``roots``), and the maps of pages that fit no known layout (``refused``).

    Mimallocs with segments come first in ``roots``, those with the most segments at the front."""

    roots: list[LocatedMimalloc]
    refused: list[UnknownMap]


def find_roots(target: Target) -> LocatedMimallocs:
    """Return every mimalloc of a target, and the maps of pages that fit no known layout."""
    found = [_placed(target, root) for root in _with_segments(target)]
    maps = list(_with_maps(target))
    roots = [each for each in maps if isinstance(each, LocatedMimalloc)]
    return LocatedMimallocs(_joined(found) + roots, [each for each in maps if isinstance(each, UnknownMap)])


# Segments.


def _with_segments(target: Target) -> list[LocatedMimalloc]:
    """Return the mimallocs with segments, one for each cookie. Each mimalloc gets the layout that the largest number of
    its pages fit.
    """
    ranges, forms = segment_ranges(target.mappings), defaultdict(list)
    for form in _native.mimalloc_forms():
        if not form.has_map:
            forms[form.cookie, form.entry].append(form)
    found: list[LocatedMimalloc] = []
    for alike in forms.values():
        known = _native.find_segments(target.space, ranges, alike[0].name)
        rows = [row for row in known if row.used]
        cookies = Counter(row.cookie for row in rows if row.tiles)
        for cookie in cookies:
            # If the cookie is right and the table is wrong, the table is damaged.
            places = {row.address: row.cookie for row in rows if row.cookie == cookie}
            root = _best(target, alike, list(places))
            if root is not None:
                empty = (row.address for row in known if row.cookie == cookie and not row.used)
                cached = [(address, address + SEGMENT) for address in empty]
                found.append(replace(root, cookie=cookie, cookies=places, cached=cached))
    found.sort(key=lambda root: (-len(root.places), -root.fit.fit))
    taken: set[int] = set()
    kept = []
    for root in found:
        if taken.isdisjoint(root.places):
            taken.update(root.places)
            kept.append(root)
    return kept


def _best(target: Target, forms: list[_native.MimallocForm], places: list[int]) -> LocatedMimalloc | None:
    """Return the mimalloc with the layout that the most pages fit; None if no page fits any layout."""
    root = _nearest(target, forms, places)
    return root if root.fit.fit else None


def _nearest(target: Target, forms: list[_native.MimallocForm], places: list[int]) -> LocatedMimalloc:
    """Return the mimalloc with the layout that the most pages fit; among equally good layouts, the one with the most
    entries in use.
    """
    fits = [(form, _native.mimalloc_fit(target.space, form.name, places)) for form in forms]
    form, fit = max(fits, key=lambda pair: (_pages(pair[1]), pair[1].entries))
    return LocatedMimalloc(form, places, fit)


def _pages(fit: _native.FormFit) -> float:
    """Return how many pages fit a layout.

    A layout may fit all sampled pages of a map and yet find only some of the map's pages. For a map, the share of the
    sample that fits is therefore multiplied by the number of pages that the layout finds."""
    return fit.placed * fit.fit / max(fit.pages, 1) if fit.entries else fit.fit


def _placed(target: Target, root: LocatedMimalloc) -> LocatedMimalloc:
    """Return ``root`` with its arenas and its module.

    The module is the loaded object whose static data holds one of its heaps or points to one of its arenas."""
    owners = _native.mimalloc_owners(target.space, root.form.name, root.places)
    module = next(filter(None, (target.object_of(owner) for owner in owners if owner)), None)
    arenas: dict[int, tuple[int, LoadedObject]] = {}
    places, anonymous = sorted(root.places), anonymous_ranges(target)
    for loaded in target.objects:
        for start, end in _arenas_of(target, loaded, places, anonymous):
            arenas.setdefault(start, (end, loaded))
    if module is None:
        module = next((loaded for _end, loaded in arenas.values()), None)
    return replace(root, module=module, arenas=sorted((start, end) for start, (end, _loaded) in arenas.items()))


def _arenas_of(target: Target, loaded: LoadedObject, places: list[int], anonymous: Ranges) -> Iterator[tuple[int, int]]:
    """Yield [start, end) of the areas from which segments are cut. The areas are found through pointers in static data
    to their structs."""
    machine, own = target.machine, loaded.writable_ranges()
    for _address, raw in windows(target.space, loaded):
        for word in set(machine.words_of(raw)):
            if word and word % machine.word == 0 and (holds(own, word) or _is_own_page(target, word)):
                with suppress(Fault):
                    yield from _arena_at(target, word, places, anonymous)


def _is_own_page(target: Target, word: int) -> bool:
    mapping = target.mappings.find(word) if target.machine.is_paged(word) else None
    return mapping is not None and mapping.anonymous and mapping.private


def _arena_at(target: Target, place: int, places: list[int], anonymous: Ranges) -> Iterator[tuple[int, int]]:
    """Yield the area whose ``mi_arena_t`` is at ``place``, if there is one. Raises Fault.

    The offsets of its fields differ between releases. gdbheap recognises the fields because their values fit each
    other."""
    machine = target.machine
    words = machine.words_of(target.space.read(place, ARENA_WORDS * machine.word))
    for start, blocks, fields in zip(words, words[1:], words[2:]):
        if start and start % SEGMENT == 0 and 0 < blocks <= MAX_BLOCKS and fields == -(-blocks // SLICES_IN_FIELD):
            end = start + blocks * SEGMENT
            first = bisect_left(places, start)
            if first < len(places) and places[first] < end and is_in(anonymous, start, end):
                yield start, end


def anonymous_ranges(target: Target) -> Ranges:
    """Return the anonymous mappings, ascending and joined."""
    return joined([(mapping.start, mapping.end) for mapping in target.mappings if mapping.anonymous])


def is_in(ranges: Ranges, start: int, end: int) -> bool:
    """Return whether a single one of the disjoint ``ranges`` contains all of [start, end)."""
    found = containing(ranges, start)
    return found is not None and end <= found[1]


def _joined(roots: list[LocatedMimalloc]) -> list[LocatedMimalloc]:
    """Return the mimallocs, after single segments were joined to the mimallocs that they seem to belong to.

    A mimalloc with only one segment may be a segment of another mimalloc with a damaged cookie. It is joined if exactly
    one earlier mimalloc has the same layout and may have the same module. Its module may be the same if it is unknown
    or equal."""
    found: list[LocatedMimalloc] = []
    for root in roots:
        of_same = [other for other in found if other.form.name == root.form.name]
        alike = [other for other in of_same if root.module in (None, other.module)]
        if len(root.places) == 1 and len(alike) == 1:
            place = found.index(alike[0])
            cookies = {**alike[0].cookies, **root.cookies}
            found[place] = replace(alike[0], places=sorted(cookies), cookies=cookies)
        else:
            found.append(root)
    return found


# Maps.


def _with_maps(target: Target) -> Iterator[LocatedMimalloc | UnknownMap]:
    """Yield each mimalloc that is found by its map of pages, and each map that fits no known layout.

    A word in the static data of a loaded object points to such a map.
    """
    forms = [form for form in _native.mimalloc_forms() if form.has_map]
    seen: set[int] = set()
    for loaded in target.objects:
        for row in _native.find_page_maps(target.space, loaded.writable_ranges()):
            if row.map in seen or len(seen) >= MAX_MAPS:
                continue
            seen.add(row.map)
            root = _nearest(target, forms, [row.map])
            if _is_enough(root.fit, len(target.threads)):
                yield replace(root, module=loaded)
            elif root.fit.entries >= SOME:
                fit = f"{root.form.name} fits best: {root.fit.fit} of {root.fit.entries} entries of its page map match"
                yield UnknownMap(loaded, fit)


def _is_enough(fit: _native.FormFit, threads: int) -> bool:
    """Return whether a layout finds a page for nearly every entry of a map, and nearly all sampled pages fit the
    layout.

    A few pages may fit another layout by chance. Each thread may be changing one page, which does not fit then.
    """
    is_placed = _are_few(max(0, fit.entries - fit.placed), fit.placed, threads)
    return fit.fit > 0 and is_placed and _are_few(fit.pages - fit.fit, fit.fit, threads)


def _are_few(off: int, others: int, threads: int) -> bool:
    return off * 4 <= others and off * 10 <= max(off + others, 10 * threads)
