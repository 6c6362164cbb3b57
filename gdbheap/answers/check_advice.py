"""What came of advice: which of the settings that findings name was the program started with, and is it in force?"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gdbheap.allocators.glibc.locate import MallocPar
from gdbheap.answers.findings import Evidence, Finding
from gdbheap.answers.findings.thresholds import DEFAULT, how
from gdbheap.answers.ledger import judged
from gdbheap.errors import GdbheapError
from gdbheap.heap import Heap
from gdbheap.target.environment import initial_environment

TUNABLES = "GLIBC_TUNABLES"


@dataclass(frozen=True)
class Setting:
    """One setting of malloc. ``value``: what the program was started with, None where it was not; ``by``: the variable
    that said so (a tunable in GLIBC_TUNABLES too). ``in_force``: what malloc's own ``mp_`` has in ``field`` now;
    ``how``: "set", "default" or "risen". ``took``: whether they are the same, None where nothing was set.

    ``about``: the memory that the setting is for, "large-holes" (of 128 KiB or more), "tops" or "thread-tops";
    ``bytes``: its resident bytes now, None where residency is not known."""

    name: str
    value: str | None
    by: str | None
    field: str
    in_force: int
    how: str
    took: bool | None
    about: str
    bytes: int | None


@dataclass(frozen=True)
class Other:
    """A setting that is no malloc's: what the program was started with (None: it was not), and whose it is."""

    name: str
    value: str | None
    whose: str


@dataclass(frozen=True)
class CheckAdvice:
    """The answer of ``heap check-advice``. ``settings`` of glibc's malloc, ``others`` of runtimes that are here;
    ``findings``: those that advise a setting now. ``environment``: whether that of the program's start is known."""

    settings: list[Setting]
    others: list[Other]
    findings: list[Finding]
    environment: bool


@dataclass(frozen=True)
class _Kind:
    name: str
    tunable: str
    field: str
    about: str
    default: int


KINDS = (
    _Kind("MALLOC_MMAP_THRESHOLD_", "glibc.malloc.mmap_threshold", "mmap_threshold", "large-holes", DEFAULT),
    _Kind("MALLOC_TRIM_THRESHOLD_", "glibc.malloc.trim_threshold", "trim_threshold", "tops", DEFAULT),
    _Kind("MALLOC_ARENA_MAX", "glibc.malloc.arena_max", "arena_max", "thread-tops", 0),
)


def check_advice(heap: Heap) -> CheckAdvice:
    """Each setting, as it was given and as it is in force. Raises Unsupported where neither glibc's malloc nor a
    runtime that has settings is here."""
    given = initial_environment(heap.target)
    others = [
        Other(name, (given or {}).get(name), runtime.kind.name)
        for runtime in heap.runtimes
        for name in runtime.kind.environment
    ]
    evidence, findings = judged(heap)
    advising = [finding for finding in findings if finding.environment]
    try:
        par = heap.walked.par
    except GdbheapError:
        if not others:
            raise
        return CheckAdvice([], others, advising, given is not None)
    settings = [_setting(kind, par, given or {}, evidence) for kind in KINDS]
    return CheckAdvice(settings, others, advising, given is not None)


def _setting(kind: _Kind, par: MallocPar, given: dict[str, str], evidence: Evidence) -> Setting:
    value, by = _given(kind, given)
    in_force: int = getattr(par, kind.field)
    took = None if value is None else _number(value) == in_force
    return Setting(
        kind.name, value, by, kind.field, in_force, _how(kind, par), took, kind.about, _bytes(kind, evidence)
    )


def _given(kind: _Kind, given: dict[str, str]) -> tuple[str | None, str | None]:
    """The variable's value, else the tunable's: glibc reads GLIBC_TUNABLES after the variables, and it wins."""
    if kind.tunable in given:
        return given[kind.tunable], TUNABLES
    for part in given.get(TUNABLES, "").split(":"):
        name, _, value = part.partition("=")
        if name == kind.tunable:
            return value, TUNABLES
    value_of = given.get(kind.name)
    return value_of, kind.name if value_of is not None else None


def _number(value: str) -> int | None:
    """As strtoul reads it, base 0; None for what is no number."""
    digits = value.strip()
    base = 16 if digits.lower().startswith("0x") else 8 if digits.startswith("0") else 10
    try:
        return int(digits, base)
    except ValueError:
        return None


def _how(kind: _Kind, par: MallocPar) -> str:
    if kind.field == "arena_max":
        return "set" if par.arena_max else "default"
    return {"set": "set", "the default": "default"}.get(how(par, getattr(par, kind.field)), "risen")


def _bytes(kind: _Kind, evidence: Evidence) -> int | None:
    heap = evidence.heap
    if heap.target.pages is None:
        return None
    measures: dict[str, Callable[[], int]] = {
        "large-holes": lambda: evidence.released((row[0], row[1]) for row in heap.chunks.holes(DEFAULT)),
        "tops": lambda: evidence.resident("glibc.top"),
        "thread-tops": lambda: evidence.resident("glibc.top") - evidence.resident("glibc.top.0"),
    }
    return measures[kind.about]()
