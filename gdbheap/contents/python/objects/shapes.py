"""Data for the native graph: which words of objects are references (see native/core/src/graph/shapes.rs).

For types without an entry here, every word that contains an object's address is a reference. Words in lists of weak
references are not.
"""

from __future__ import annotations

from dataclasses import field

from gdbheap.contents.python.objects.owned import CLOSED, SET_ENTRY, SET_MASK
from gdbheap.dataclass import dataclass
from gdbheap.layout import cpython
from gdbheap.layout.cpython import OBJECT_HEAD, Release

ALL_OF_BASE = -1
NONE = -1
WEAK_CALLBACK = 24
UNICODE_DEFENC = 40
# Offsets in PyFrameObject since 3.11.
FRAME_BACK, FRAME_FRAME, FRAME_TRACE = 16, 24, 32
# A member of enum _framestate; since 3.15 the members differ (gi_frame_gone).
COMPLETED = 1
HASHED_ENTRY = 24

PLAIN = ["int", "long", "float", "complex", "bytes", "str", "bytearray"]
WEAK = [
    "weakref", "weakproxy", "weakcallableproxy", "weakref.ReferenceType", "weakref.ProxyType",
    "weakref.CallableProxyType",
]  # fmt: skip
GENERATORS = ["generator", "coroutine", "async_generator"]
# The offset from gi_frame_state to gi_origin_or_finalizer, a word that plain generators do not initialise.
ORIGIN = -11
# Further C types, besides CLOSED, in whose objects every word that is the address of an object is a reference.
KNOWN = (
    "type", "module", "code", "collections.deque", "NoneType", "memoryview", "managedbuffer", "super", "reversed",
    "filter", "set_iterator", "dict_valueiterator", "dict_itemiterator", "dict_keys", "dict_values", "dict_items",
    "functools._lru_cache_wrapper", "operator.itemgetter", "operator.attrgetter", "itertools.chain",
    "itertools.islice", "itertools.count", "itertools.repeat", "itertools.cycle", "_io.TextIOWrapper",
    "_io.BufferedReader", "_io.BufferedWriter", "_io.BufferedRandom", "_io.FileIO", "collections.OrderedDict",
)  # fmt: skip


@dataclass(frozen=True)
class Form:
    """The words that are references in the objects of some types; see native/core/src/graph/shapes.rs.

    The types are those with a base in ``names``.
    """

    names: list[str]
    opaque: int = ALL_OF_BASE
    fields: list[int] = field(default_factory=list)
    skipped: list[int] = field(default_factory=list)
    items: int = NONE
    frame: int = NONE
    frame_state: int = 0
    frame_gone: int = COMPLETED
    frame_pointer: int = 0
    table: int = NONE
    table_pointer: int = 0
    table_mask: int = 0
    table_step: int = SET_ENTRY
    table_first: int = 0
    table_words: int = 1
    is_handle: bool = False


@dataclass(frozen=True)
class FrameLayout:
    """The offsets in bytes of a frame's fields; see native/core/src/graph/shapes.rs."""

    fields: list[int]
    code: int
    locals: int
    top: int
    top_is_pointer: bool
    executing: int
    stack: int
    code_locals: int
    tags: int


@dataclass(frozen=True)
class KeysLayout:
    """The offsets in bytes of the fields of a dict's keys object; see native/core/src/graph/shapes.rs."""

    kind: int
    log2_index_bytes: int
    size: int
    entries: int
    indices: int


@dataclass(frozen=True)
class GraphLayout:
    """The offsets of references in the objects of a release, for the native graph.

    ``interpreters``: the addresses of the interpreters' states, which contain free lists."""

    sizeof_type: int
    forms: list[Form]
    frame: FrameLayout | None
    keys: KeysLayout | None
    managed_dict: int
    flag_inline_values: int
    set_key: int
    ob_size: int
    tp_weaklistoffset: int
    tp_dictoffset: int
    interpreters: list[int]
    flag_heap_type: int = cpython.FLAG_HEAP_TYPE
    flag_managed_dict: int = cpython.FLAG_MANAGED_DICT
    closed: tuple[str, ...] = (*CLOSED, *KNOWN)
    closed_families: tuple[str, ...] = ("BaseException", "exceptions.BaseException")


def graph_layout(release: Release, interpreters: list[int]) -> GraphLayout:
    """Return the offsets in bytes of the references in a release's objects. Raises Unsupported if the tables lack a
    field.
    """
    return GraphLayout(
        sizeof_type=release["sizeof_type"],
        forms=_forms(release),
        frame=frame_layout(release),
        keys=_keys(release),
        managed_dict=release.get("managed_dict") or 0,
        flag_inline_values=release.get("flag_inline_values") or 0,
        set_key=set_key(release),
        ob_size=release.at(cpython.OB_SIZE),
        tp_weaklistoffset=release.at(cpython.TP_WEAKLISTOFFSET),
        tp_dictoffset=release.at(cpython.TP_DICTOFFSET),
        interpreters=interpreters,
    )


def set_key(release: Release) -> int:
    """Return the offset in bytes of the key in an entry of a set's table. In Python 2 the hash lies before the key."""
    return release["set_key"]


def _forms(release: Release) -> list[Form]:
    at = release.at
    forms = [
        Form(["unicode"], fields=[at(UNICODE_DEFENC)]),
        Form(PLAIN),
        Form(["tuple"], items=release["tuple_items"]),
        Form(["list"]),
        _set_form(release),
        Form(WEAK, fields=[at(WEAK_CALLBACK)]),
        _dict_form(release),
        _code_form(release),
        # tp_flags is skipped: for a type of dicts or exceptions it is at least 0x2000_0000, which may be an address in
        # a heap.
        Form(["type"], opaque=at(OBJECT_HEAD), skipped=[at(cpython.TP_FLAGS)]),
        # The links to the latest and the oldest result are skipped, because the results belong to the dict.
        Form(["functools._lru_cache_wrapper"], opaque=at(OBJECT_HEAD), skipped=[at(OBJECT_HEAD), at(OBJECT_HEAD + 8)]),
    ]
    return [*forms, Form(["PyCapsule"], opaque=at(OBJECT_HEAD), is_handle=True), *_frame_forms(release)]


def _set_form(release: Release) -> Form:
    return Form(
        ["set", "frozenset"], table=release["set_small"], table_pointer=release["set_table"],
        table_mask=release.at(SET_MASK), table_first=set_key(release),
    )  # fmt: skip


def _dict_form(release: Release) -> Form:
    if release.get("ma_table") is None:
        return Form(["dict", "frozendict"])
    return Form(
        ["dict"], table=release["dict_small"], table_pointer=release["ma_table"], table_mask=release["ma_mask"],
        table_step=HASHED_ENTRY, table_first=8, table_words=2,
    )  # fmt: skip


def _code_form(release: Release) -> Form:
    """Return which words of code objects are references. Their field _co_unique_id is skipped: only free-threaded
    builds fill it.
    """
    unfilled = release.get("co_unique_id")
    return Form(["code"], opaque=release.at(OBJECT_HEAD), skipped=[] if unfilled is None else [unfilled])


def _frame_forms(release: Release) -> list[Form]:
    """Return which words of frames and generators are references.

    Up to 3.10 a frame is an object. Since 3.11 it is a part of another object, or lies on a separate stack of its
    thread.
    """
    embedded, at = release.get("frame_data"), release.at
    if embedded is None:
        running = release.get("gi_running")
        return [
            Form(["frame"], frame=0),
            Form(GENERATORS, at(OBJECT_HEAD), skipped=[] if running is None else [running]),
        ]
    return [
        Form(["frame"], fields=[at(FRAME_BACK), at(FRAME_TRACE)], frame=embedded, frame_pointer=at(FRAME_FRAME)),
        *(_generator_form(release, name) for name in GENERATORS),
    ]


def _generator_form(release: Release, name: str) -> Form:
    state = release["gi_frame_state"]
    return Form(
        [name], opaque=release.at(OBJECT_HEAD), skipped=[state + ORIGIN] if name == "generator" else [],
        frame=release["gi_iframe"], frame_state=state, frame_gone=release.get("gi_frame_gone") or COMPLETED,
    )  # fmt: skip


def frame_layout(release: Release) -> FrameLayout:
    """Return the offsets in bytes of a frame's fields. Raises Unsupported if the tables lack one."""
    return FrameLayout(
        fields=release.offsets("f_fields"),
        code=release["f_code"],
        locals=release["f_locals"],
        top=release["f_top"],
        top_is_pointer=bool(release["f_top_is_pointer"]),
        executing=release.get("f_executing") or 0,
        stack=release.get("f_stack") or 0,
        code_locals=release.get("co_nlocalsplus") or 0,
        tags=release.get("f_tags") or 0,
    )


def _keys(release: Release) -> KeysLayout | None:
    if release.get("ma_table") is not None:
        return None

    def optional(name: str) -> int:
        offset = release.get(name)
        return NONE if offset is None else offset

    return KeysLayout(
        kind=optional("dk_kind"),
        log2_index_bytes=optional("dk_log2_index_bytes"),
        size=optional("dk_size"),
        entries=release["dk_nentries"],
        indices=release["dk_indices"],
    )
