"""malloc's thresholds in force, and how they came to their values."""

from __future__ import annotations

from typing import Literal

from gdbheap.allocators.glibc.locate import MallocPar
from gdbheap.allocators.glibc.start_settings import number_of, setting_in
from gdbheap.targets.environment import initial_environment
from gdbheap.targets.target import Target

# glibc malloc/malloc.c: DEFAULT_MMAP_THRESHOLD_MIN and DEFAULT_TRIM_THRESHOLD.
DEFAULT_THRESHOLD = 128 << 10
Origin = Literal["set", "risen", "default"]
SET: Origin = "set"
RISEN: Origin = "risen"
DEFAULT: Origin = "default"
OWN = "own"
MMAP, TRIM = "mmap_threshold", "trim_threshold"


def origin(par: MallocPar, value: int) -> Origin:
    """How a threshold came to its value: it was set, it has risen with the mmapped chunks that were freed, or it is
    the default."""
    if not par.dynamic:
        return SET
    return RISEN if value > DEFAULT_THRESHOLD else DEFAULT


def origin_in(target: Target, par: MallocPar, name: str) -> str:
    """How that threshold came to its value: as ``origin`` says, and OWN where the program has set it itself, to another
    value than it was started with. No variable counts against mallopt()."""
    value: int = getattr(par, name)
    found = origin(par, value)
    environment = initial_environment(target) if found == SET and value > DEFAULT_THRESHOLD else None
    if environment is None:
        return found
    given, _by = setting_in(environment, f"MALLOC_{name.upper()}_", f"glibc.malloc.{name}")
    return SET if given is not None and number_of(given) == value else OWN
