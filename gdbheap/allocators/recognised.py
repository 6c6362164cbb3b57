"""Recognise allocators whose blocks are not walked: jemalloc, tcmalloc, mimalloc, musl's malloc, or another malloc.

An allocator is recognised by the name of its file, or by a function that only this allocator has. Such a function also
reveals an allocator that is linked into the program. The kernel shows the allocator's memory only if the allocator
names its mappings (``PR_SET_VMA_ANON_NAME``). Otherwise the memory is an unknown part of the private anonymous memory
without another owner."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from itertools import chain

from gdbheap.allocators.runtimes import NAME_LIMIT, file_name, kind_of, title
from gdbheap.dataclass import dataclass
from gdbheap.errors import Fault, one_line
from gdbheap.targets.elf import LoadedObject
from gdbheap.targets.mappings import Mapping
from gdbheap.targets.target import AT_ENTRY, Target
from gdbheap.targets.unseen_files import about
from gdbheap.text import named

META_AREA_HEAD = 56
MAX_DATA_BYTES = 4 << 20


@dataclass(frozen=True)
class RecognisedKind:
    """A kind of allocator: its name, its characteristic functions, and a sentence on how to get its statistics.

    One function that no other allocator has is enough to recognise it.
    """

    name: str
    functions: tuple[str, ...]
    advice: str


KINDS = (
    RecognisedKind(
        "jemalloc",
        ("mallocx", "je_mallocx", "_rjem_mallocx", "_rjem_je_mallocx"),
        "malloc_stats_print() in the process, or MALLOC_CONF=stats_print:true at its start, shows how much is in use",
    ),
    RecognisedKind(
        "tcmalloc",
        ("tc_malloc", "MallocExtension_GetStats", "MallocExtension_Internal_GetStats"),
        "MallocExtension::GetStats() in the process shows how much is in use",
    ),
    RecognisedKind(
        "mimalloc",
        ("mi_malloc", "mi_heap_malloc"),
        "mi_stats_print() in the process, or MIMALLOC_SHOW_STATS=1 at its start, shows how much is in use",
    ),
)
MUSL = RecognisedKind("musl", (), "")


@dataclass(frozen=True)
class OtherAllocator:
    """An allocator other than glibc's: its kind, the loaded object that contains it, and how it was recognised.

    ``named``: the allocator names its mappings."""

    kind: RecognisedKind
    path: str
    evidence: str
    named: bool = False

    @property
    def id(self) -> str:
        """The id for ledger lines: the name of a known kind, otherwise "allocator"."""
        return self.kind.name if self.kind in (*KINDS, MUSL) else "allocator"

    @property
    def title(self) -> str:
        """The title of the ledger line for its memory. If mappings are not named, the line includes other memory
        too."""
        return title(self.kind.name, self.named)

    def owns(self, mapping: Mapping) -> bool:
        """Return whether a mapping without another owner counts as this allocator's memory."""
        if self.named:
            return _is_named(mapping, self.kind)
        plain = mapping.path in ("", "[heap]")
        return plain and mapping.anonymous and mapping.private and mapping.writable


def find_other(target: Target, idle: bool, walked: Collection[str | None] = ()) -> OtherAllocator | None:
    """Return an allocator that is present next to glibc's, or instead of it if glibc's is ``idle``.

    None if there is none. Allocators named in ``walked`` are ignored, because their blocks are walked. If glibc's
    allocator is idle, the symbols of every loaded object are read. Otherwise only the symbols of the program are used,
    which are known already.
    """
    program = target.object_of(target.auxv.get(AT_ENTRY, 0))
    asked = target.objects if idle else [program] if program else []
    shown = chain(_by_file(target), _by_function(asked, idle))
    found = next((other for other in shown if other.kind.name not in walked), None)
    if found is None and idle and not walked:
        found = _by_malloc(target) or _musl(target)
    if found is None:
        return None
    named = any(_is_named(mapping, found.kind) for mapping in target.mappings)
    return OtherAllocator(found.kind, found.path, found.evidence, named)


def _is_named(mapping: Mapping, kind: RecognisedKind) -> bool:
    return mapping.path.startswith("[anon") and kind.name in mapping.path


def _by_file(target: Target) -> Iterator[OtherAllocator]:
    for loaded in target.objects:
        name = _file_name(loaded)
        for kind in KINDS:
            if name.startswith(f"lib{kind.name}"):
                yield OtherAllocator(kind, loaded.path, _told(_function_of(loaded, kind, True)))


def _by_function(objects: list[LoadedObject], idle: bool) -> Iterator[OtherAllocator]:
    for loaded in objects:
        for kind in KINDS:
            function = _function_of(loaded, kind, idle)
            if function:
                yield OtherAllocator(kind, loaded.path, _told(function))


def _function_of(loaded: LoadedObject, kind: RecognisedKind, hidden: bool) -> str | None:
    """Return the function that identifies the allocator in a loaded object, or None.

    A function that is not exported proves the allocator in two cases: ``hidden`` is True, or the function has Rust's
    prefix, because every program with that prefix uses the allocator. In other cases it proves nothing, because CPython
    contains an unused mimalloc."""
    known = (name for name in kind.functions if loaded.symbol(name) is not None)
    return next((name for name in known if hidden or name.startswith("_") or loaded.exported(name)), None)


def _by_malloc(target: Target) -> OtherAllocator | None:
    """Return an allocator for the first loaded object, other than a C library, that exports malloc() and free(); None
    if there is none.

    The allocator is named after the runtime to which the loaded object belongs, or else after the object's file. The
    caller uses the result only if the C library's own malloc is idle.
    """
    for loaded in target.objects:
        is_libc = loaded.exported("__libc_start_main") or _file_name(loaded).startswith("ld")
        if not is_libc and loaded.exported("malloc") and loaded.exported("free"):
            runtime = kind_of(loaded)
            kind = (
                RecognisedKind(runtime.name, (), runtime.advice)
                if runtime
                else RecognisedKind(_file_name(loaded), (), "")
            )
            return OtherAllocator(kind, loaded.path, _told("malloc"))
    return None


def _told(function: str | None) -> str:
    return f"it has {function}" if function else "by its name"


def _file_name(loaded: LoadedObject) -> str:
    return one_line(file_name(loaded.path), NAME_LIMIT)


# musl.


def no_glibc(target: Target) -> str:
    """Return why the target has no glibc malloc, in one line."""
    musl = _musl(target)
    if musl is not None:
        where = f"{named(one_line(musl.path))}, {musl.evidence}"
        return f"malloc here is musl's ({where}), not glibc's"
    if target.unseen:
        return f"no glibc malloc was found, because {about(target.unseen)}"
    return "no glibc malloc in this target: no loaded object's data holds 127 bins and a closed ring of arenas"


def _musl(target: Target) -> OtherAllocator | None:
    for loaded in target.objects:
        if "ld-musl" in loaded.path or "libc.musl" in loaded.path or "-linux-musl/libc.so" in loaded.path:
            return OtherAllocator(MUSL, loaded.path, _told(None))
    for loaded in target.objects:
        place = _mallocng_context(target, loaded)
        if place is not None:
            return OtherAllocator(MUSL, loaded.path, f"mallocng's context is at {place:#x}")
    return None


def _mallocng_context(target: Target, loaded: LoadedObject) -> int | None:
    """Return the address of ``__malloc_context`` (musl 1.2.1 and later) in a loaded object's data, or None.

    The first word of the context, a secret, is also the first word of each metadata page: ``{u64 secret; int init_done;
    unsigned mmap_counter; …; struct meta_area *meta_area_head @56; …}``, mallocng/meta.h.
    """
    for start, end in loaded.writable_ranges():
        raw = target.space.read_available(start, min(end - start, MAX_DATA_BYTES))
        words = target.machine.words_of(raw)
        triples = zip(words, words[1:], words[META_AREA_HEAD // target.machine.word :])
        for index, (secret, initialised, head) in enumerate(triples):
            is_one = initialised & 0xFFFFFFFF == 1 and secret and head and target.machine.is_paged(head)
            if is_one and _word(target, head) == secret:
                return start + target.machine.word * index
    return None


def _word(target: Target, address: int) -> int | None:
    try:
        return target.space.word(address)
    except Fault:
        return None
