"""Find out how the thresholds of glibc's malloc got their values: by a setting, by glibc itself, or by default."""

from __future__ import annotations

from typing import Literal

from gdbheap.allocators.glibc.locate import MallocPar
from gdbheap.allocators.glibc.start_settings import number_of, setting_in
from gdbheap.targets.start_environment import initial_environment
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
    """Return how a threshold got its value: it was set, glibc raised it when large blocks were freed, or it is the
    default.
    """
    if not par.dynamic:
        return SET
    return RISEN if value > DEFAULT_THRESHOLD else DEFAULT


def origin_in(target: Target, par: MallocPar, name: str) -> str:
    """Return how the threshold ``name`` got its value: one of the results of ``origin``, or OWN.

    OWN means that the program itself changed the value with mallopt(), which overrides the environment.
    """
    value: int = getattr(par, name)
    found = origin(par, value)
    environment = initial_environment(target) if found == SET and value > DEFAULT_THRESHOLD else None
    if environment is None:
        return found
    given, _by = setting_in(environment, f"MALLOC_{name.upper()}_", f"glibc.malloc.{name}")
    return SET if given is not None and number_of(given) == value else OWN
