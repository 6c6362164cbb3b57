"""The layout of the tables of dicts and sets, and a test whether a table is nearly empty."""

from __future__ import annotations

from gdbheap.contents.python.objects.bounded_reads import ReadableMemory
from gdbheap.contents.python.objects.owned import SET_MASK
from gdbheap.contents.python.objects.reading import index_width
from gdbheap.contents.python.objects.shapes import set_key
from gdbheap.contents.python.text.repr import SET_USED
from gdbheap.dataclass import dataclass
from gdbheap.errors import Fault
from gdbheap.layout.cpython import FLAG_BYTES, FLAG_UNICODE, OB_SIZE, Release

# The first keys of the dicts of modules and classes.
FIRST_NAMES = ["__name__", "__module__"]
DICT_SLOT, SET_SLOT, HASHED_KEY = 24, 16, 8
# How many places of a table are sampled, and how many slots at each place. A third of the slots of a dict's table is
# normally in use, and a seventh of the slots of a set's table.
PLACES, INDICES, ENTRIES = 32, 16, 4
SPARSE_DIVISOR = 4
# The most bytes by which a block may exceed its table, because of headers and of rounding to pages.
MAX_TABLE_SURPLUS = 4352
MAX_LOG2 = 40


@dataclass(frozen=True)
class TableHead:
    """Offsets in the table of a dict; -1 if the release does not have the field.

    ``slots_at``, ``log2_at``: the number of slots, and its logarithm; a release has one of the two.
    ``kind_at``: the kind of the table.
    ``indices``: the indices.
    """

    slots_at: int
    log2_at: int
    kind_at: int
    indices: int


@dataclass(frozen=True)
class TableEntries:
    """The layout of those keys of a table that are strings.

    ``text_flags``: the flags of the types of strings.
    ``text_at``: the offset of the characters in a string.
    ``first_names``: the first keys in the dicts of modules and classes; such a dict is recognised by them.
    """

    text_flags: int
    text_at: int
    first_names: list[str]


@dataclass(frozen=True)
class Table:
    """The layout of an object's table; see native/core/src/python/containers/tables.rs.

    Offsets in the object:
    ``used_at``: the number of entries.
    ``table_at``: the pointer to the table.
    ``mask_at``: the number of slots less one; may be -1.
    ``shared_at``: a word that is not 0 if the table is shared; may be -1.

    ``slot``: the most bytes that a slot takes, including its share of the entries.
    ``key_at``: the offset of the key in a slot, if slots are entries.
    """

    name: str
    used_at: int
    table_at: int
    mask_at: int
    shared_at: int
    slot: int
    key_at: int
    head: TableHead | None
    entries: TableEntries | None


def tables_of(release: Release) -> list[Table]:
    """Return the layouts of the tables of a dict and of a set, in this order."""
    key, at = set_key(release), release.at
    in_set = Table("set", at(SET_USED), release["set_table"], at(SET_MASK), -1, SET_SLOT, key, None, None)
    if release.get("ma_table") is not None:
        used, table, mask = (release[name] for name in ("ma_used", "ma_table", "ma_mask"))
        texts = TableEntries(FLAG_BYTES, release["bytes_data"], FIRST_NAMES)
        return [Table("dict", used, table, mask, -1, DICT_SLOT, HASHED_KEY, None, texts), in_set]
    slots, log2, kind = (-1 if at is None else at for at in map(release.get, ("dk_size", "dk_log2_size", "dk_kind")))
    head = TableHead(slots, log2, kind, release["dk_indices"])
    texts = TableEntries(FLAG_UNICODE, release["sizeof_ascii"], FIRST_NAMES)
    # Only a split table has its values elsewhere.
    keys, values = release["ma_keys"], release["ma_values"]
    return [Table("dict", at(OB_SIZE), keys, -1, values, DICT_SLOT, HASHED_KEY, head, texts), in_set]


def looks_sparse(space: ReadableMemory, table: Table, address: int, size: int) -> bool:
    """Return whether a block may be a table with few items.

    Such a block has the layout ``table``, and less than a quarter of its slots are in use.
    """
    try:
        if table.head is None:
            return _has_few_keys(space, table, address, 1 << (size // table.slot).bit_length() - 1)
        slots = _slots(space, table.head, address)
        is_table = table.slot // 2 * slots <= size <= table.slot * slots + MAX_TABLE_SURPLUS
        return is_table and _has_few_indices(space, address + table.head.indices, slots)
    except Fault:
        return False


def _slots(space: ReadableMemory, head: TableHead, address: int) -> int:
    if head.slots_at >= 0:
        return space.word(address + head.slots_at)
    return 1 << min(space.read(address + head.log2_at, 1)[0], MAX_LOG2)


def _has_few_indices(space: ReadableMemory, start: int, slots: int) -> bool:
    """Return whether few indices of a table are in use. An index is negative if its slot has no entry or a removed
    entry.
    """
    width = index_width(slots)
    seen = 0
    for place in range(PLACES):
        raw = space.read(start + width * (slots * place // PLACES), width * INDICES)
        seen += sum(byte < 0x80 for byte in raw[width - 1 :: width])
    return seen * SPARSE_DIVISOR < PLACES * INDICES


def _has_few_keys(space: ReadableMemory, table: Table, start: int, slots: int) -> bool:
    """Return whether few keys of a table are in use.

    Different keys are counted, because all removed entries have the same key.
    """
    keys: set[int] = set()
    for place in range(PLACES):
        raw = space.read(start + table.slot * (slots * place // PLACES), table.slot * ENTRIES)
        keys.update(space.machine.word_of(raw, table.slot * entry + table.key_at) for entry in range(ENTRIES))
    return len(keys - {0}) * SPARSE_DIVISOR < PLACES * ENTRIES
