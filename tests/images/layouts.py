"""The layouts of glibc's malloc on x86-64, by version: from DWARF of the libraries, or from malloc.c without one."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class State:
    """Offsets in struct malloc_state."""

    size: int
    top: int
    bins: int
    binmap: int
    next: int
    system_mem: int
    fast: int | None = None
    attached: int | None = None


@dataclass(frozen=True)
class Par:
    """Offsets in struct malloc_par, after the five words that all versions share."""

    size: int
    n_mmaps: int
    mmapped_mem: int
    sbrk_base: int
    tcache: int | None = None
    hp_pagesize: int | None = None


@dataclass(frozen=True)
class Cache:
    """struct tcache_perthread_struct: ``bins`` counts of ``width`` bytes at 0, then as many entries."""

    size: int
    bins: int
    width: int
    remaining: bool = False
    fill: int = 7

    @property
    def entries(self) -> int:
        """Return the offset of the entries."""
        return self.bins * self.width

    @property
    def chunk(self) -> int:
        """Return the size of the chunk that contains it."""
        return (self.size + 8 + 15) // 16 * 16


@dataclass(frozen=True)
class Glibc:
    """The layouts of all structures in some versions of glibc, which ``name`` lists."""

    name: str
    state: State
    par: Par
    heap_info: int = 32
    cache: Cache | None = None
    safe_linking: bool = False
    header_outside: bool = False
    tags: frozenset[str] = field(default_factory=frozenset)


_STATE_217 = State(size=2184, fast=8, top=88, bins=104, binmap=2136, next=2152, system_mem=2168)
_STATE_223 = State(size=2192, fast=8, top=88, bins=104, binmap=2136, next=2152, attached=2168, system_mem=2176)
_STATE_227 = State(size=2200, fast=16, top=96, bins=112, binmap=2144, next=2160, attached=2176, system_mem=2184)
_STATE_243 = State(size=2112, top=8, bins=24, binmap=2056, next=2072, attached=2088, system_mem=2096)
_PAR_217 = Par(size=88, n_mmaps=40, mmapped_mem=56, sbrk_base=80)
_PAR_226 = Par(size=112, n_mmaps=40, mmapped_mem=56, sbrk_base=72, tcache=80)
_PAR_235 = Par(size=136, n_mmaps=60, mmapped_mem=80, sbrk_base=96, tcache=104, hp_pagesize=48)
_PAR_243 = Par(size=144, n_mmaps=68, mmapped_mem=88, sbrk_base=104, tcache=112, hp_pagesize=56)
_PAR_244 = Par(size=136, n_mmaps=68, mmapped_mem=88, sbrk_base=104, tcache=112, hp_pagesize=56)
_CACHE_226 = Cache(size=576, bins=64, width=1)
_CACHE_230 = Cache(size=640, bins=64, width=2)
_CACHE_242 = Cache(size=760, bins=76, width=2, remaining=True)
_CACHE_243 = Cache(size=760, bins=76, width=2, remaining=True, fill=16)
_KEY, _RANDOM_KEY = frozenset({"key"}), frozenset({"random key"})

GLIBCS = (
    Glibc("2.17-2.22", _STATE_217, _PAR_217),
    Glibc("2.23-2.25", _STATE_223, _PAR_217),
    Glibc("2.26", _STATE_223, _PAR_226, cache=_CACHE_226),
    Glibc("2.27-2.28", _STATE_227, _PAR_226, cache=_CACHE_226),
    Glibc("2.29", _STATE_227, _PAR_226, cache=_CACHE_226, tags=_KEY),
    Glibc("2.30-2.31", _STATE_227, _PAR_226, cache=_CACHE_230, tags=_KEY),
    Glibc("2.32-2.33", _STATE_227, _PAR_226, cache=_CACHE_230, safe_linking=True, tags=_KEY),
    Glibc("2.34", _STATE_227, _PAR_226, cache=_CACHE_230, safe_linking=True, tags=_RANDOM_KEY),
    Glibc("2.35-2.41", _STATE_227, _PAR_235, 48, _CACHE_230, True, tags=_RANDOM_KEY),
    Glibc("2.42", _STATE_227, _PAR_235, 48, _CACHE_242, True, tags=_RANDOM_KEY),
    Glibc("2.43", _STATE_243, _PAR_243, 48, _CACHE_243, True, True, tags=_RANDOM_KEY),
    Glibc("2.44", _STATE_243, _PAR_244, 48, _CACHE_243, True, True, tags=_RANDOM_KEY),
)
