"""List what gdbheap knows about a target, and the source of each fact."""

from __future__ import annotations

from gdbheap.allocators.finding import MALLOC
from gdbheap.answers.aborted import MESSAGE, abort_message
from gdbheap.dataclass import dataclass
from gdbheap.errors import GdbheapError
from gdbheap.heap import Heap
from gdbheap.host.procfs import as_shown
from gdbheap.layout.facts import Fact
from gdbheap.targets.elf import LoadedObject

ABORT = "abort"


@dataclass(frozen=True)
class Info:
    """The answer of ``heap info``: the facts about a target."""

    rows: list[Fact]


def info(heap: Heap) -> Info:
    """Return all facts about a target, those about the process or the core itself first.

    If malloc or Python cannot be read, its fact is the reason.
    """
    facts = [*_abort_facts(heap), *_target_facts(heap)]
    for name, ask in ((MALLOC.name, lambda: heap.malloc), ("Python", lambda: heap.python.objects)):
        try:
            ask()
        except GdbheapError as error:
            facts.append(Fact(name, "unknown", str(error), None))
    return Info(facts + heap.facts.all() + _other_facts(heap) + _runtime_facts(heap))


def _abort_facts(heap: Heap) -> list[Fact]:
    """Return a fact with the message with which glibc ended the process; an empty list if glibc did not end it."""
    message = abort_message(heap)
    return [] if message is None else [Fact(ABORT, message, f"{MESSAGE} of the C library", None)]


def _runtime_facts(heap: Heap) -> list[Fact]:
    """Return a fact for each runtime and server that was recognised."""
    found = heap.runtimes if heap.target.refusal is None else []
    return [Fact(f"runtime {each.kind.id}", each.kind.name, f"{each.path}, {each.evidence}", None) for each in found]


def _other_facts(heap: Heap) -> list[Fact]:
    """Return a fact about an allocator other than the C library's. The fact is confirmed if the C library's allocator
    is empty.
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
        Fact("target", f"{target.kind} {target.pid if target.pid is not None else target.core}", source, None),
        Fact("executable", target.exe or "unknown", source, None),
        Fact("machine", target.machine.name, "ELF header", None),
        Fact("mappings", str(len(target.mappings)), source, None),
        Fact("threads", str(len(target.threads)), "registers", None),
        Fact("residency", "known" if target.pages is not None else "unknown", target.rss.source, None),
    ]
    facts += [_object_fact(loaded, target.pid) for loaded in target.objects]
    for file in target.unseen:
        other = f"{file.other} is another version" if file.other is not None else None
        facts.append(Fact(f"object {file.path}", "unknown", "its ELF headers are not in the core", other))
    return facts


def _object_fact(loaded: LoadedObject, pid: int | None) -> Fact:
    name, build_id = f"object {loaded.path}", loaded.build_id or "no build-id"
    file = as_shown(loaded.file, pid) if loaded.file else None
    if loaded.agreed:
        agreed = f"{loaded.agreed} words of its data in the core equal those of this file"
        return Fact(name, build_id, f"{file}, because the core lacks its ELF headers", agreed)
    return Fact(name, build_id, "ELF notes in memory", f"{file} has the same" if file else None)
