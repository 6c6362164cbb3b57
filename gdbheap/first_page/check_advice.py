"""Compare the settings that gdbheap advises with those that the program was started with, and with those in force."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from typing import Literal

from gdbheap.allocators.glibc.allocator import NAME, TOP, GlibcAllocator
from gdbheap.allocators.glibc.locate import MallocPar
from gdbheap.allocators.glibc.start_settings import number_of, setting_in
from gdbheap.allocators.line_ids import line_below
from gdbheap.answers.accounting.partition import total
from gdbheap.contents.python.text.disclosure import Disclosure
from gdbheap.dataclass import dataclass
from gdbheap.errors import GdbheapError
from gdbheap.findings.finding import Evidence, Finding
from gdbheap.findings.thresholds import DEFAULT, DEFAULT_THRESHOLD, SET, Origin, origin
from gdbheap.first_page.ledger import judged
from gdbheap.heap import Heap
from gdbheap.targets.start_environment import initial_environment

HUGETLB = "hugetlb"
About = Literal["large-holes", "tops", "thread-tops", "huge-pages"]


@dataclass(frozen=True)
class MallocSetting:
    """One setting of glibc's malloc, from a variable of its own or from GLIBC_TUNABLES.

    ``how``: how the value in force came about: "set", "default" or "risen" (raised by glibc). ``memory``: the memory
    that the setting affects. "large-holes" are holes of 128 KiB or more, "huge-pages" is malloc's memory in huge pages.
    "tops" and "thread-tops" are top chunks."""

    name: str
    value: str | None
    by: str | None
    field: str
    in_force: int
    how: Origin
    took: bool | None
    memory: About
    bytes: int | None


@dataclass(frozen=True)
class Other:
    """A setting of another allocator or of a runtime. ``whose``: the name of the allocator or runtime."""

    name: str
    value: str | None
    whose: str


@dataclass(frozen=True)
class CheckAdvice:
    """The answer of ``heap check-advice``: the settings of the process, and the current findings that advise a
    setting.
    """

    settings: list[MallocSetting]
    other_settings: list[Other]
    findings: list[Finding]
    knows_environment: bool
    heeded: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class _Kind:
    name: str
    tunable: str
    field: str
    about: About


KINDS = (
    _Kind("MALLOC_MMAP_THRESHOLD_", "glibc.malloc.mmap_threshold", "mmap_threshold", "large-holes"),
    _Kind("MALLOC_TRIM_THRESHOLD_", "glibc.malloc.trim_threshold", "trim_threshold", "tops"),
    _Kind("MALLOC_ARENA_MAX", "glibc.malloc.arena_max", "arena_max", "thread-tops"),
    # This is only a tunable (since 2.35); mp_ stores its effect in two fields.
    _Kind("glibc.malloc.hugetlb", "glibc.malloc.hugetlb", HUGETLB, "huge-pages"),
)


def check_advice(heap: Heap) -> CheckAdvice:
    """Return each setting, with the value that the program was started with and the value in force.

    Raises Unsupported if the process has neither glibc's malloc nor another malloc or a runtime with settings.
    """
    given = initial_environment(heap.target)
    others = _others(heap, given or {})
    evidence, findings = judged(heap)
    advising = [finding for finding in findings if finding.environment]
    heeded = [finding.id for finding in advising if _is_heeded(finding, given or {})]
    try:
        par = heap.allocator(GlibcAllocator).malloc.par
    except GdbheapError:
        if not others:
            raise
        return CheckAdvice([], others, advising, given is not None, heeded)
    known = [kind for kind in KINDS if kind.field != HUGETLB or par.layout["hp_pagesize"] is not None]
    settings = [_setting(kind, par, given or {}, evidence) for kind in known]
    return CheckAdvice(settings, others, advising, given is not None, heeded)


def _is_heeded(finding: Finding, given: dict[str, str]) -> bool:
    """Return whether the program was started with all settings that a finding advises.

    One variable may have several settings, separated by commas.
    """
    wanted = finding.environment.items()
    return all(set(value.split(",")) <= set(given.get(name, "").split(",")) for name, value in wanted)


def _others(heap: Heap, given: dict[str, str]) -> list[Other]:
    names = [(name, allocator.title) for allocator in heap.allocators for name in allocator.variables()]
    names += [(name, runtime.kind.name) for runtime in heap.runtimes for name in runtime.kind.environment]
    return [Other(name, _shown(heap.disclosure, given.get(name)), whose) for name, whose in names]


def _shown(disclosure: Disclosure, value: str | None) -> str | None:
    return None if value is None else disclosure.setting(value)


def _setting(kind: _Kind, par: MallocPar, given: dict[str, str], evidence: Evidence) -> MallocSetting:
    value, by = setting_in(given, kind.name, kind.tunable)
    in_force = _in_force(kind, par)
    took = None if value is None else _is_in_force(kind, number_of(value), in_force)
    shown = _shown(evidence.heap.disclosure, value)
    return MallocSetting(
        kind.name, shown, by, kind.field, in_force, _how(kind, par), took, kind.about, _bytes(kind, evidence)
    )


def _in_force(kind: _Kind, par: MallocPar) -> int:
    """Return the value that malloc uses for a setting.

    For hugetlb: 0, 1 (malloc asks for transparent huge pages) or 2 (malloc takes pages of hugetlbfs).
    """
    if kind.field == HUGETLB:
        return 2 if par.hp_pagesize else int(par.thp_pagesize > 0)
    found: int = getattr(par, kind.field)
    return found


def _is_in_force(kind: _Kind, number: int | None, in_force: int) -> bool:
    """Return whether malloc uses the given number for a setting. For hugetlb, a number of 2 or more is the size of the
    pages.
    """
    return (min(number, 2) if number is not None and kind.field == HUGETLB else number) == in_force


def _how(kind: _Kind, par: MallocPar) -> Origin:
    if kind.field in ("arena_max", HUGETLB):
        return SET if _in_force(kind, par) else DEFAULT
    return origin(par, getattr(par, kind.field))


def _bytes(kind: _Kind, evidence: Evidence) -> int | None:
    heap = evidence.heap
    pages = heap.target.pages
    if pages is None or (kind.field == HUGETLB and not pages.knows_huge):
        return None
    glibc = heap.allocator(GlibcAllocator)
    measures: dict[str, Callable[[], int]] = {
        "large-holes": lambda: evidence.released((hole.start, hole.end) for hole in glibc.holes(DEFAULT_THRESHOLD)),
        "tops": lambda: evidence.resident(TOP),
        "thread-tops": lambda: evidence.resident(TOP) - evidence.resident(line_below(TOP, 0)),
        "huge-pages": lambda: total(evidence.sums, NAME).huge,
    }
    return measures[kind.about]()
