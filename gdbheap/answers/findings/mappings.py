"""Memory that no malloc handed out: what a program or a library mapped, shared memory, files."""

from __future__ import annotations

from gdbheap.allocators.runtimes import ANONYMOUS
from gdbheap.answers.findings.finding import Claim, Evidence, Finding
from gdbheap.target.mappings import Mapping
from gdbheap.target.ranges import Ranges, subtract
from gdbheap.words import size_text

# Such memory is normal in small amounts: a quarter of RSS is remarkable.
REMARKABLE_SHARE = 4
KINDS = {
    "other.rest": (
        "mapped-memory",
        "private memory that a program or library mapped itself, beside every malloc",
        "there is no advice that is sure to free it: malloc has no part in it, and one moment does not tell which code "
        "mapped it. 'heap at ADDRESS' says what is known of the place",
    ),
    "shared": (
        "shared-memory",
        "shared memory, which is in the RSS of every process that maps it",
        "unmap it here and it leaves this RSS; the machine gets it back when the last process has, and its name is "
        "gone (shm_unlink, ipcrm)",
    ),
    "file.readonly": (
        "mapped-files",
        "pages of mapped files that are only read: the kernel's page cache, which it takes back when it must",
        "count RssAnon, not RSS; munmap() or madvise(MADV_DONTNEED) takes them out of this RSS",
    ),
}


def find(evidence: Evidence) -> list[Claim]:
    """Each kind that is a quarter of RSS or more, with its largest mapping."""
    if evidence.heap.target.pages is None:
        return []
    return [finding for owner in KINDS for finding in _of(evidence, owner)]


def _of(evidence: Evidence, owner: str) -> list[Claim]:
    pieces = _pieces(evidence, owner)
    # Another allocator's memory is no piece of its own: it is not among the owner's pages.
    size = min(evidence.resident(owner), sum(resident for resident, *_ in pieces))
    if not evidence.worth(size) or size * REMARKABLE_SHARE < (evidence.heap.target.rss.bytes or 0):
        return []
    name, what, advice = KINDS[owner]
    resident, start, end = max(pieces)
    mapping = evidence.heap.target.mappings.find(start)
    text = f"{what}; the most, {size_text(resident)}, at {start:#x} ({mapping.name if mapping else ''})"
    figures = {"address": start, "virtual": end - start, "resident": resident}
    commands: list[str] = []
    if owner == "other.rest":
        advice, commands = _by_whom(evidence, advice)
    finding = Finding(name, size, text, advice, figures, commands)
    return [Claim(finding, lambda: [(start, end) for _resident, start, end in pieces])]


def _by_whom(evidence: Evidence, advice: str) -> tuple[str, list[str]]:
    """How to find out who maps such memory: the runtimes that may, or the calls themselves."""
    target = evidence.heap.target
    pid = target.pid if target.kind == "process" else None
    may = [runtime for runtime in evidence.heap.runtimes if runtime.kind.memory == ANONYMOUS]
    if may:
        names = " or ".join(runtime.kind.name for runtime in may)
        return f"{advice}. It may be {names}'s", [line for runtime in may for line in runtime.commands(pid)]
    if pid is None:
        return advice, []
    command = f"strace -f -k -e trace=mmap,mremap,munmap -p {pid}"
    return f"{advice}; the command shows which code maps more memory, while it happens", [command]


def _pieces(evidence: Evidence, owner: str) -> list[tuple[int, int, int]]:
    """(resident bytes, start, end) of what is of that kind and no part of a heap, a stack or a loaded object."""
    target, taken = evidence.heap.target, _taken(evidence)
    if target.pages is None or taken is None:
        return []
    of_kind = [(mapping.start, mapping.end) for mapping in target.mappings if _is_of(mapping, owner)]
    return [(target.pages.count(*piece).resident, *piece) for piece in subtract(of_kind, taken)]


def _taken(evidence: Evidence) -> Ranges | None:
    """What allocators, stacks and loaded objects have; None where an allocator is there and not known."""
    heap = evidence.heap
    if heap.target.refusal is not None or evidence.glibc is None:
        return None
    if heap.unknown_allocators:
        return None
    taken = heap.owned_ranges() + heap.single_blocks()
    taken += [(mapping.start, mapping.end) for loaded in heap.target.objects for mapping in loaded.mappings]
    return sorted(taken)


def _is_of(mapping: Mapping, owner: str) -> bool:
    if owner == "shared":
        return not mapping.private
    if owner == "file.readonly":
        return mapping.private and not mapping.anonymous and not mapping.writable and not mapping.executable
    return mapping.private and mapping.anonymous
