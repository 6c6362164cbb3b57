"""CPython's pymalloc in a stopped process, found without symbols and without the interpreter's version.

``usedpools`` is an array of list heads, one for each size class. The pools on its lists show the pool size. The table
``arenas`` is the one that fits the ``arenaindex`` of every pool. If an interpreter runs without pymalloc
(``PYTHONMALLOC=malloc``), every list is empty. Since 3.12 a subinterpreter may have its own pools and arenas.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from gdbheap import _native
from gdbheap.allocators.confirming import confirm
from gdbheap.allocators.pymalloc.usedpools import MAX_CLASSES, MIN_CLASSES, ListHeads, PoolState
from gdbheap.allocators.python_modules import need_python, python_first, python_modules
from gdbheap.dataclass import dataclass
from gdbheap.errors import GdbheapError, Unsupported, one_line
from gdbheap.layout.facts import Facts
from gdbheap.targets.elf import LoadedObject
from gdbheap.targets.ranges import Ranges, subtract
from gdbheap.targets.target import Damage, Target
from gdbheap.text import named

# The pool size that the native code gets if pymalloc has no pools; any value works.
NO_POOL_SIZE = 4 << 10
# Pools of other interpreters point to the list heads of these interpreters. At most this many addresses are tried as
# list heads, beginning with those to which the most pools point.
MAX_INTERPRETERS = 4 << 10


@dataclass(frozen=True)
class ArenaRow:
    """An arena, as the native code expects it. ``carved``: the end address of the pools that were made so far
    (``pool_address``).
    """

    number: int
    index: int
    address: int
    carved: int
    size: int


class Pymalloc:
    """pymalloc in one target. The constructor raises NotAPython or Unsupported.

    ``states``: one state for each interpreter with its own pools, the main interpreter first. ``states`` is empty if
    pymalloc is not in use; then ``pool_size`` and ``arena_size`` are None. ``outside``: a function that returns the
    parts of ranges that malloc does not own.
    """

    def __init__(self, target: Target, facts: Facts, outside: Callable[[Ranges], Ranges]) -> None:
        self.target = target
        self.facts = facts
        self.damage: list[Damage] = []
        need_python(target)
        heads = self._find_usedpools()
        self.module, self.alignment = heads.module, heads.alignment
        self.states: list[PoolState] = self._find_states(heads, outside) if heads.has_pools(target) else []
        self.arenas = [arena for state in self.states for arena in state.arenas]
        self.pool_size: int | None = None
        self.arena_size: int | None = None
        if self.states:
            self._learn_sizes()
        self.pools = self._read_pools()

    def _find_usedpools(self) -> ListHeads:
        """Return the first ``usedpools`` whose lists have pools; if there is none, the first empty one. Raises
        Unsupported."""
        tried: list[str] = []
        idle: ListHeads | None = None
        for loaded in python_first(self.target):
            tried.append(named(one_line(loaded.path.rsplit("/", 1)[-1])))
            for heads, count in self._list_heads(loaded):
                if heads.has_pools(self.target):
                    confirmed = confirm(loaded, "usedpools", heads.address)
                    text = f"{count} list heads in a row, with pools on them"
                    self.facts.add("usedpools", heads.address, text, confirmed)
                    return heads
                if idle is None and count == heads.classes and self._is_empty(heads):
                    idle = heads
        if idle is None:
            raise Unsupported(
                f"no pymalloc was found (looked for usedpools in {', '.join(tried[:6])}): the program uses another "
                "allocator, or an unknown interpreter"
            )
        confirmed = confirm(idle.module, "usedpools", idle.address)
        self.facts.add("usedpools", idle.address, f"{idle.classes} list heads in a row, all empty", confirmed)
        return idle

    def _list_heads(self, loaded: LoadedObject) -> Iterator[tuple[ListHeads, int]]:
        for start, end in loaded.writable_ranges():
            for run in _native.find_list_heads(self.target.space, start, end, MIN_CLASSES):
                classes = MAX_CLASSES if run.pairs >= MAX_CLASSES else MIN_CLASSES
                yield ListHeads(run.address, classes, loaded), run.pairs

    def _is_empty(self, heads: ListHeads) -> bool:
        """Return whether all lists are empty, in a loaded object that may contain CPython.

        A list is empty if it points to its own head. In another object, an array of 32 or 64 heads is not usedpools."""
        words = self.target.space.read(heads.address, 16 * heads.classes)
        own = b"".join((heads.address + 16 * index - 16).to_bytes(8, "little") * 2 for index in range(heads.classes))
        return words == own and heads.module in python_modules(self.target)

    def _find_states(self, heads: ListHeads, outside: Callable[[Ranges], Ranges]) -> list[PoolState]:
        main = PoolState(self.target, heads, self.facts)
        if not main.is_struct:
            return [main]
        states = [main]
        for other in self._other_heads(main, outside):
            try:
                states.append(PoolState(self.target, other, Facts(), sum(state.slots for state in states)))
            except GdbheapError:
                continue
        self.facts.add(
            "interpreters with pools of their own", len(states), "pools whose lists end at the heads of other lists"
        )
        return states

    def _other_heads(self, main: PoolState, outside: Callable[[Ranges], Ranges]) -> list[ListHeads]:
        """Return the list heads of interpreters other than the main one, to which pools in anonymous memory point."""
        own = [pair for loaded in self.target.objects for pair in loaded.writable_ranges()]
        size = main.arena_size
        own += [(arena.address, arena.address + size) for arena in main.arenas]
        candidates = [
            (mapping.start, mapping.end)
            for mapping in self.target.mappings
            if mapping.anonymous and mapping.private and mapping.writable and mapping.readable
        ]
        ranges = outside(subtract(candidates, sorted(own)))
        found = _native.find_list_ends(self.target.space, ranges, main.pool_size, main.heads.alignment)
        likely = sorted(found, key=lambda address: (-found[address], address))[:MAX_INTERPRETERS]
        heads = (ListHeads(address, main.heads.classes, main.heads.module) for address in sorted(likely))
        return [other for other in heads if other.address != main.heads.address and other.has_pools(self.target)]

    def _learn_sizes(self) -> None:
        main = self.states[0]
        self.pool_size, self.arena_size = main.pool_size, max(state.arena_size for state in self.states)
        facts, classes = self.facts, main.heads.classes
        facts.add("pymalloc pool size", self.pool_size, "nextoffset limits of the pools in use", "every pool sampled")
        facts.add("pymalloc alignment", self.alignment, f"usedpools has {classes} classes")
        facts.add("pymalloc arena size", self.arena_size, "ntotalpools of its arenas")

    def _read_pools(self) -> _native.Pools:
        size = self.arena_size or 0
        rows = [ArenaRow(arena.number, arena.index, arena.address, arena.pool_address, size) for arena in self.arenas]
        pools = _native.read_pools(self.target.space, rows, self.pool_size or NO_POOL_SIZE, self.alignment)
        self.damage.extend(map(Damage.of, pools.damage))
        return pools

    @property
    def in_use(self) -> bool:
        """Whether any block of pymalloc is in use."""
        return bool(self.states)

    @property
    def free_pools(self) -> int:
        """The number of free pools, including pools not made yet: ``unused pools`` of ``sys._debugmallocstats()``.

        The number is the sum of ``nfreepools`` over all arenas."""
        return sum(arena.nfreepools for arena in self.arenas)

    def ranges(self) -> Ranges:
        """Return (start, end) of every arena, ascending."""
        return self.pools.arena_ranges()
