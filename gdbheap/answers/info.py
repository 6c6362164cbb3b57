"""List what gdbheap knows about a target, and the source of each fact."""

from __future__ import annotations

from gdbheap.allocators.registry import MALLOC
from gdbheap.answers.aborted import MESSAGE, abort_message
from gdbheap.dataclass import dataclass
from gdbheap.errors import GdbheapError, NotAPython
from gdbheap.heap import Heap
from gdbheap.host.procfs import as_shown
from gdbheap.host.program_name import program_name
from gdbheap.layout.facts import Fact
from gdbheap.targets.elf import LoadedObject

# The names of facts that the report reads, and two values.
ABORT, TARGET, PROGRAM, RESIDENCY, ALLOCATOR = "abort", "target", "program", "residency", "allocator"
PYTHON, OBJECT = "python", "object "
NO_PYTHON = "Python"
UNKNOWN, NONE = "unknown", "none"


@dataclass(frozen=True)
class Info:
    """The answer of ``heap info``: the facts about a target."""

    rows: list[Fact]


def info(heap: Heap) -> Info:
    """Return all facts about a target, those about the process or the core itself first.

    If malloc or Python cannot be read, its fact states the reason.
    """
    facts = [*_abort_facts(heap), *_target_facts(heap)]
    for name, ask in ((MALLOC.name, lambda: heap.malloc), (NO_PYTHON, lambda: heap.python.objects)):
        try:
            ask()
        except GdbheapError as error:
            is_none = isinstance(error, NotAPython) and not heap.target.unseen
            facts.append(Fact(name, NONE if is_none else UNKNOWN, str(error), None))
    return Info([*facts, _allocator_fact(heap), *heap.facts.all(), *_other_facts(heap), *_runtime_facts(heap)])


def _allocator_fact(heap: Heap) -> Fact:
    """Return a fact that names the allocators behind malloc() in this program."""
    found = heap.versions["allocator"]
    return Fact(ALLOCATOR, found or UNKNOWN, "the allocators whose structures were found", None)


def _abort_facts(heap: Heap) -> list[Fact]:
    """Return a fact with the message with which glibc ended the process; an empty list if glibc did not end it."""
    message = abort_message(heap)
    return [] if message is None else [Fact(ABORT, message, f"{MESSAGE} of the C library", None)]


def _runtime_facts(heap: Heap) -> list[Fact]:
    """Return a fact for each runtime and server that was recognised."""
    found = heap.runtimes if heap.target.refusal is None else []
    return [Fact(f"runtime {each.kind.id}", each.kind.name, f"{each.path}, {each.evidence}", None) for each in found]


def _other_facts(heap: Heap) -> list[Fact]:
    """Return a list with a fact about an allocator other than the C library's; empty if none is recognised.

    If the C library's allocator has no memory, this confirms the fact: the program's blocks must come from elsewhere.
    """
    other = heap.other_allocator if heap.target.refusal is None else None
    if other is None:
        return []
    malloc = heap.find_allocator(MALLOC)
    empty = f"{MALLOC.name}'s arenas are empty" if malloc is not None and malloc.idle else None
    return [Fact("other allocator", other.kind.name, f"{other.path}, {other.evidence}", empty)]


def _target_facts(heap: Heap) -> list[Fact]:
    target = heap.target
    source = f"/proc/{target.pid}" if target.kind == "process" else "the core file"
    facts = [
        Fact(TARGET, f"{target.kind} {target.pid if target.pid is not None else target.core}", source, None),
        Fact(PROGRAM, program_name(target.arguments, target.exe) or UNKNOWN, source, None),
        Fact("executable", target.exe or UNKNOWN, source, None),
        Fact("machine", target.machine.name, "ELF header", None),
        Fact("mappings", str(len(target.mappings)), source, None),
        Fact("threads", str(len(target.threads)), "registers", None),
        Fact(RESIDENCY, "known" if target.pages is not None else UNKNOWN, target.rss.source, None),
    ]
    facts += [_object_fact(loaded, target.pid) for loaded in target.objects]
    for file in target.unseen:
        other = f"{file.other} is another version" if file.other is not None else None
        facts.append(Fact(f"{OBJECT}{file.path}", UNKNOWN, "its ELF headers are not in the core", other))
    return facts


def _object_fact(loaded: LoadedObject, pid: int | None) -> Fact:
    name, build_id = f"{OBJECT}{loaded.path}", loaded.build_id or "no build-id"
    file = as_shown(loaded.file, pid) if loaded.file else None
    if loaded.agreed:
        agreed = f"{loaded.agreed} words of its data in the core equal those of this file"
        return Fact(name, build_id, f"{file}, because the core lacks its ELF headers", agreed)
    return Fact(name, build_id, "ELF notes in memory", f"{file} has the same" if file else None)
