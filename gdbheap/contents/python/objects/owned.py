"""The fields through which objects own blocks, as data for the native census.

The offsets are CPython's (Objects/*.c of each release; the shipped tables were checked against DWARF).
"""

from __future__ import annotations

from gdbheap.contents.python.objects.reading import ASCII, COMPACT
from gdbheap.dataclass import dataclass
from gdbheap.layout.cpython import (
    FLAG_DICT,
    FLAG_LIST,
    FLAG_MANAGED_DICT,
    FLAG_TYPE,
    FLAG_UNICODE,
    OB_SIZE,
    Release,
)

ROLES = (
    "items",
    "keys",
    "values",
    "table",
    "data",
    "utf-8",
    "wide characters",
    "shared keys",
    "name",
    "state",
    "nodes",
    "dimensions",
    "structure",
    "documentation",
    "definition",
    "free items",
)
REACHED = ROLES.index("structure")
ANY_WORD = 0xFFFFFFFF
OWNDATA = 4
SET_MASK = 32
# The sizes of an entry in a set's table, of an entry in the table of Python 2's dict, and of a node of an OrderedDict.
# The offsets of the item size in array.array's description, and of the buffer size in a buffered file.
SET_ENTRY, TABLE_ENTRY, ORDERED_NODE, ITEM_SIZE, BUFFER_SIZE = 16, 24, 56, 4, 120
# MAXFREEBLOCKS of Modules/_collectionsmodule.c.
FREE_DEQUE_BLOCKS = 16
# sizeof(sem_t) where a word has 64 bits.
SEMAPHORE = 32
# The lowest bit of the field in a str's state that gives the number of bytes of a character.
KIND_AT = 2
# The offset of m_size in struct PyModuleDef, in all releases since 3.0.
M_SIZE = 56
TP_DOC = 176
# The possible rules for the links that are followed from a claimed block; see native/core/src/python/layout.rs.
NOTHING, ALL, CLAIM = -1, -2, -3
# The possible contents of a claimed block, which are its references; see native/core/src/graph/shapes.rs.
(LEAF, ITEMS, KEYS, PREFIXED, HEADED, SPLIT, SET, TABLE, DEQUE, ANYTHING, OLD_DEQUE, COUNTED,
 MODULE_STATE) = range(1, 14)  # fmt: skip

# The possible rules for the size of a claimed block; see native/core/src/python/unwalked.rs.
(UNKNOWN_SIZE, COUNT, OF_KEYS, TEXT, OF_ITEMS, STRIDES, VARIABLE, OF_SPLIT, OF_HEADED, STATE, CHARACTERS,
 OF_PREFIXED) = range(12)  # fmt: skip
NOWHERE = -1

# Objects with a pointer to a PyMethodDef or PyGetSetDef. This struct is static data, unless a library (cffi, PyO3) made
# it at run time.
DESCRIPTORS = ["method_descriptor", "classmethod_descriptor", "getset_descriptor"]
LOCKS = ["_thread.lock", "_thread.RLock", "thread.lock"]
BUFFERED = ["_io.BufferedReader", "_io.BufferedWriter", "_io.BufferedRandom"]

# Types whose fields hold only objects and plain values, except for the fields that the families list.
CLOSED = (
    "object", "int", "float", "complex", "str", "bytes", "bytearray", "tuple", "list", "dict", "set",
    "frozenset", "cell", "function", "method", "builtin_function_or_method", "instancemethod", "slice", "range",
    "property", "staticmethod", "classmethod", "generator", "coroutine", "async_generator",
    "wrapper_descriptor", "method_descriptor", "classmethod_descriptor", "getset_descriptor",
    "member_descriptor", "method-wrapper", "mappingproxy", "BaseException", "weakref", "weakref.ReferenceType",
    "list_iterator", "tuple_iterator", "dict_keyiterator", "enumerate", "zip", "map", "datetime.date",
    "datetime.datetime", "datetime.time", "datetime.timedelta", "collections.defaultdict", "functools.partial",
    "types.SimpleNamespace", "frame", "traceback", "types.GenericAlias",
)  # fmt: skip


@dataclass(frozen=True)
class Extent:
    """The rule for computing a block's size from fields of its owner or of the block itself.

    With the rule COUNT, the size is ``unit`` times the word at the offset ``at`` of the owner, plus ``more`` bytes.
    Other rules use the numbers in other ways; see native/core/src/python/unwalked.rs.
    """

    rule: int
    at: int = NOWHERE
    unit: int = 0
    more: int = 0


NO_EXTENT = Extent(UNKNOWN_SIZE)


@dataclass(frozen=True)
class Claim:
    """A pointer field at ``offset`` in an object; the object owns the block to which it points.

    ``test``, ``mask``, ``low``, ``high``: the field is valid if the masked bits at the offset ``test`` are ``low`` to
    ``high``.
    ``follow``: the words of the block that point to further blocks: NOTHING, ALL, or the offset of a link. CLAIM also
    means none; the field is then valid only if a block begins there that is not an object.
    ``last``: the offset in the object of the pointer to the last block of a chain; 0 if the chain ends with a link of
    0.
    ``contents``: the references in the block; see native/core/src/graph/shapes.rs.
    ``count_at``: the offset in the object of the number of these references, -1 if it has none.
    ``extent``: the rule for the block's size, needed if no walked allocator has the block.
    """

    offset: int
    test: int
    mask: int
    low: int
    high: int
    role: int
    follow: int
    last: int
    contents: int
    count_at: int
    extent: Extent


@dataclass(frozen=True)
class Family:
    """Types that own blocks through the same fields.

    ``flags``, ``names``: the types are those that have a bit of ``flags``, or a base named in ``names``.
    ``claims``: the fields.
    """

    flags: int
    names: list[str]
    claims: list[Claim]


def _claim(
    offset: int,
    role: str,
    test: int = 0,
    mask: int = 0,
    low: int = 0,
    high: int | None = None,
    follow: int = NOTHING,
    last: int = 0,
    contents: int = LEAF,
    count_at: int = -1,
    extent: Extent = NO_EXTENT,
) -> Claim:
    """Return the claim of one pointer field. By default, the field is always valid, and its block has no references.

    ``role``: the role of the block for its owner, one of ROLES. ``high`` defaults to ``low``.
    """
    high = low if high is None else high
    return Claim(offset, test, mask, low, high, ROLES.index(role), follow, last, contents, count_at, extent)


def families(release: Release) -> list[Family]:
    """Return the families of types that own blocks in this release."""
    at = release.at
    found = [
        Family(FLAG_LIST, [], _list_claims(release)),
        # frozendict exists since 3.15, and is not a subclass of dict.
        Family(FLAG_DICT, ["frozendict"], _dict_claims(release)),
        Family(FLAG_UNICODE, [], _str_claims(release)),
        Family(0, ["set", "frozenset"], _set_claims(release)),
        Family(FLAG_TYPE, [], _type_claims(release)),
        Family(0, ["module"], _optional(release, "md_state", "state", ALL, MODULE_STATE, Extent(STATE))),
        Family(0, ["array.array"], [_claim(at(24), "items", extent=Extent(OF_ITEMS, at(32), at(40), ITEM_SIZE))]),
        Family(0, ["collections.deque"], _deque_claims(release)),
        Family(0, ["collections.OrderedDict"], _ordered_claims(release)),
        Family(0, ["_io.StringIO"], [_claim(at(16), "data", extent=Extent(COUNT, at(40), 4))]),
        Family(0, BUFFERED, [_claim(at(56), "data", extent=Extent(COUNT, at(BUFFER_SIZE), 1))]),
        # Up to 3.13 a lock points to a semaphore (PyThread_allocate_lock), which is smaller than its block and has no
        # pointers.
        Family(0, LOCKS, [_claim(at(16), "data", follow=CLAIM, extent=Extent(COUNT, more=SEMAPHORE))]),
        Family(0, ["_ctypes._CData"], _ctypes_claims(release)),
        Family(0, ["numpy.ndarray"], _ndarray_claims(release)),
        # The fields of mmap_object in all releases since 2.7: data, size.
        Family(0, ["mmap.mmap"], [_claim(at(16), "data", extent=Extent(COUNT, at(24), 1))]),
        Family(0, ["builtin_function_or_method"], [_claim(at(16), "definition", follow=CLAIM)]),
        Family(0, DESCRIPTORS, [_claim(release["descr_method"], "definition", follow=CLAIM)]),
        # Since 3.15 the data is a bytes object, to which nothing else refers and which sys.getsizeof() counts for the
        # bytearray.
        Family(0, ["bytearray"], [_claim(release["bytearray_data"], "data", extent=_bytearray_extent(release))]),
    ]
    return found + _managed_values(release)


def _list_claims(release: Release) -> list[Claim]:
    """Return the pointer field through which a list owns its array of items. In free-threaded builds the array begins
    with its capacity."""
    contents = COUNTED if release.is_free_threaded else ITEMS
    return [_claim(release["ob_item"], "items", contents=contents, count_at=release.at(OB_SIZE),
                   extent=Extent(COUNT, release["ob_item"] + 8, 8))]  # fmt: skip


def _set_claims(release: Release) -> list[Claim]:
    extent = Extent(COUNT, release.at(SET_MASK), SET_ENTRY, SET_ENTRY)
    return [_claim(release["set_table"], "table", contents=SET, count_at=release.at(SET_MASK), extent=extent)]


def _bytearray_extent(release: Release) -> Extent:
    """Return the rule for the size of a bytearray's data: the number in ``ob_alloc``.

    Since 3.15 the data is a bytes object. Its header and its final zero byte do not count.
    """
    if release.get("bytearray_is_bytes"):
        return Extent(VARIABLE, NOWHERE, release.at(OB_SIZE), release["bytes_data"] + 1)
    return Extent(COUNT, release["bytearray_alloc"], 1)


@dataclass(frozen=True)
class DequeLayout:
    """The layout of a deque.

    Offsets in the deque:
    ``left``: the pointer to its first block.
    ``left_index``: the index of the first item in that block.
    ``length``: the number of items.

    Offsets in a block:
    ``items``: the items.
    ``right_link``: the link to the next block.

    ``room``: the number of items for which a block has room.
    """

    left: int
    left_index: int
    length: int
    room: int
    items: int
    right_link: int


def deque_layout(release: Release) -> DequeLayout:
    """Return the layout of a deque in this release.

    In Python 2 a block has both links after its items, the right one first. In Python 3 the left link lies before the
    items."""
    names = "deque_left", "deque_left_index", "deque_length", "deque_room", "deque_items", "deque_right_link"
    return DequeLayout(*(release[name] for name in names))


def _deque_claims(release: Release) -> list[Claim]:
    """Return the pointer fields through which a deque owns its blocks of items.

    The blocks form a chain from its field leftblock to its field rightblock. The link of the last block is stale.

    Since 3.11 a deque keeps up to 16 empty blocks, with stale items, and stores the number of these blocks.
    """
    layout = deque_layout(release)
    contents = DEQUE if layout.items else OLD_DEQUE
    left, last = layout.left, layout.left + 8
    extent = Extent(COUNT, more=8 * (layout.room + 2))
    found = [_claim(left, "items", follow=layout.right_link, last=last, contents=contents, count_at=left,
                    extent=extent)]  # fmt: skip
    free, count = release.get("deque_free"), release.get("deque_free_count")
    if free is not None and count is not None:
        for place in range(FREE_DEQUE_BLOCKS):
            found.append(_claim(free + 8 * place, "free items", count, ANY_WORD, place + 1, FREE_DEQUE_BLOCKS,
                                extent=extent))  # fmt: skip
    return found


def _ordered_claims(release: Release) -> list[Claim]:
    """Return the pointer fields through which an OrderedDict owns its nodes and its table.

    The nodes form a chain, and the table contains the addresses of all nodes. Other memory does not prove a node: freed
    nodes still contain such addresses.
    """
    nodes = _claim(release.at(48), "nodes", follow=16, contents=ANYTHING, extent=Extent(COUNT, more=ORDERED_NODE))
    size = release.at(72)
    table = _claim(release.at(64), "table", contents=ITEMS, count_at=size, extent=Extent(COUNT, size, 8))
    return [nodes, table]


def _ctypes_claims(release: Release) -> list[Claim]:
    """Return the pointer field of a CDataObject, b_ptr: the object owns the block if b_needsfree is not 0."""
    needs_free = release.at(24)
    return [_claim(release.at(16), "data", needs_free, ANY_WORD, 1, ANY_WORD, contents=ANYTHING,
                   extent=Extent(COUNT, release.at(40), 1))]  # fmt: skip


def _ndarray_claims(release: Release) -> list[Claim]:
    """Return the pointer fields through which a numpy array (PyArrayObject_fields) owns blocks. An array owns its data
    if it has OWNDATA. The block of the dimensions also contains the strides.
    """
    return [
        _claim(
            release.at(16),
            "data",
            test=release.at(64),
            mask=OWNDATA,
            low=OWNDATA,
            contents=ANYTHING,
            extent=Extent(STRIDES, release.at(24), release.at(32), release.at(40)),
        ),
        _claim(release.at(32), "dimensions"),
    ]


def _dict_claims(release: Release) -> list[Claim]:
    """Return the pointer fields through which a dict owns its blocks.

    The keys of a split table belong to the type. A dict that has separate values therefore does not own the keys."""
    if release.get("ma_table") is not None:
        return [_claim(release["ma_table"], "table", contents=TABLE, count_at=release["ma_mask"],
                       extent=Extent(COUNT, release["ma_mask"], TABLE_ENTRY, TABLE_ENTRY))]  # fmt: skip
    keys, values = release["ma_keys"], release["ma_values"]
    claims = [_claim(keys, "keys", test=values, mask=ANY_WORD, low=0, contents=KEYS, extent=Extent(OF_KEYS))]
    header = release.get("values_header")
    if header is None:
        return [*claims, _claim(values, "values", contents=SPLIT, count_at=keys, extent=Extent(OF_SPLIT, keys))]
    if header == 0:
        return [*claims, _claim(values, "values", contents=PREFIXED)]
    # Since 3.13 the values may be a part of the instance to which the dict belongs.
    return [*claims, _claim(values, "values", follow=CLAIM, contents=HEADED, extent=Extent(OF_HEADED))]


def _str_claims(release: Release) -> list[Claim]:
    state = release.get("unicode_state")
    if state is None:
        return [_claim(release["unicode_data"], "data")]
    utf8 = release["unicode_utf8"]
    wide = Extent(CHARACTERS, release["unicode_length"], state, KIND_AT + (release.get("unicode_state_shift") or 0))
    compact, ascii_only = (bit << (release.get("unicode_state_shift") or 0) for bit in (COMPACT, ASCII))
    claims = [
        _claim(
            utf8,
            "utf-8",
            state,
            compact | ascii_only,
            0,
            (compact | ascii_only) - 1,
            extent=Extent(COUNT, utf8 - 8, 1, 1),
        ),
        _claim(release["unicode_data"], "data", state, compact, 0, extent=wide),
    ]
    return claims + _optional(release, "unicode_wstr", "wide characters")


def _type_claims(release: Release) -> list[Claim]:
    keys = _optional(release, "ht_cached_keys", "shared keys", contents=KEYS, extent=Extent(OF_KEYS))
    found = keys + _optional(release, "_ht_tpname", "name", extent=Extent(TEXT))
    return [_claim(release.at(TP_DOC), "documentation", extent=Extent(TEXT)), *found]


def state_size(release: Release) -> list[int]:
    """Return the offsets of the fields that lead from a module to the size of its state; empty if unknown.

    The last field is the size. Each field before it points to the object with the next field.

    The size is needed because the block is larger than the state. Words after the state may be stale and point
    anywhere.
    """
    if release.get("md_state_size") is not None:
        return [release["md_state_size"]]
    return [release["md_def"], release.at(M_SIZE)] if release.get("md_def") is not None else []


def _optional(
    release: Release, field: str, role: str, follow: int = NOTHING, contents: int = LEAF, extent: Extent = NO_EXTENT
) -> list[Claim]:
    """Return [Claim] for an owning pointer field, or [] if this release of Python does not have the field."""
    offset = release.get(field)
    return [] if offset is None else [_claim(offset, role, follow=follow, contents=contents, extent=extent)]


def _managed_values(release: Release) -> list[Family]:
    """Return the family of types whose objects own their attribute values. A word before the object points to the
    values.

    In 3.11 this word always points to the values. In 3.12 it points to the values if it has a tag, otherwise to the
    dict.
    """
    extent = Extent(OF_PREFIXED, unit=release.get("ht_cached_keys") or 0, more=release.get("dk_nentries") or 0)
    values, tag = release.get("managed_values"), release.get("managed_values_tag")
    if values is not None:
        return [Family(FLAG_MANAGED_DICT, [], [_claim(values, "values", contents=PREFIXED, extent=extent)])]
    if tag is not None:
        at = release["managed_dict"]
        claim = _claim(at, "values", test=at, mask=tag, low=tag, contents=PREFIXED, extent=extent)
        return [Family(FLAG_MANAGED_DICT, [], [claim])]
    return []
