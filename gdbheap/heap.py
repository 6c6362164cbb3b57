"""Everything read from one target during one stop, each part when it is first asked for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

from gdbheap import _native
from gdbheap.allocators.carriers import has_python
from gdbheap.allocators.glibc.arenas import Glibc, MappedChunk
from gdbheap.allocators.glibc.bins import Bins, list_names
from gdbheap.allocators.glibc.mutation import Changes
from gdbheap.allocators.library_memory import Held, find_held
from gdbheap.allocators.mimalloc.segments import Mimalloc
from gdbheap.allocators.pymalloc.pools import NO_POOL_SIZE, Pymalloc
from gdbheap.allocators.recognised import OtherAllocator, find_other
from gdbheap.allocators.runtimes import Runtime, find_runtimes
from gdbheap.errors import GdbheapError, NotAPython, Unsupported, one_line
from gdbheap.layout.facts import Facts
from gdbheap.python.census import Objects
from gdbheap.python.collector import Collector, find_collector
from gdbheap.python.disclosure import Disclosure
from gdbheap.python.interpreter import Interpreter
from gdbheap.python.paths import Paths
from gdbheap.python.references import References
from gdbheap.python.roots import Roots
from gdbheap.target.ranges import Ranges, joined, subtract
from gdbheap.target.stacks import LARGEST_GUARDED, Stack, find_stacks, live_parts, unbounded
from gdbheap.target.target import Damage, Target

Progress = Callable[[str, int, int], object]

# So many blocks of which nothing is known are described.
LISTED = 10_000
CAUGHT = "caught inside malloc"
# The kind of other allocator that CPython has a copy of.
MIMALLOC = "mimalloc"


class Heap:
    """One target at one stop. Parts that cannot be had raise the same error each time they are asked for.

    ``progress`` is called as (label, bytes done, bytes in all) during long walks, on the calling thread.
    ``disclosure`` says whether texts show contents of strings, bytes and keys; it may change between answers.
    """

    def __init__(self, target: Target, progress: Progress | None = None) -> None:
        self.target = target
        self.progress = progress
        self.facts = Facts()
        # Not a method of this: the cycle would hold the target's files open.
        self.disclosure = Disclosure(is_place=partial(_is_place, target))
        self._parts: dict[str, Any] = {}
        self._failures: dict[str, GdbheapError] = {}
        self._notes: list[str] = []

    def _part(self, name: str, make: Callable[[], Any]) -> Any:
        if name in self._failures:
            raise self._failures[name]
        if name not in self._parts:
            if self.target.refusal is not None:
                raise self.target.refusal
            try:
                self._parts[name] = make()
            except _native.Fault as fault:
                error = Unsupported(f"{name} cannot be read: nothing is at {fault.args[0]:#x}")
                self._failures[name] = error
                raise error from fault
            except GdbheapError as error:
                self._failures[name] = self._cut_short(error)
                raise self._failures[name] from error
        return self._parts[name]

    def _cut_short(self, error: GdbheapError) -> GdbheapError:
        """What is missing from a truncated core is no proof that it never was there."""
        if not self.target.partial or isinstance(error, NotAPython):
            return error
        return type(error)(f"the core is truncated, and what this needs may be cut off: {error}")

    @property
    def glibc(self) -> Glibc:
        """glibc's malloc. Raises Unsupported when the target has none."""
        found: Glibc = self._part("glibc", lambda: Glibc(self.target, self.facts))
        return found

    @property
    def python(self) -> Pymalloc:
        """CPython's pymalloc. Raises NotAPython, or Unsupported."""
        found: Pymalloc = self._part("pymalloc", lambda: Pymalloc(self.target, self.facts, self._outside_of_glibc))
        return found

    def _outside_of_glibc(self, ranges: Ranges) -> Ranges:
        """The parts of ``ranges`` that are no stack and that glibc's malloc, if there is one, does not own."""
        ranges = subtract(ranges, [(stack.start, stack.end) for stack in self.stacks])
        try:
            rest = subtract(ranges, self.glibc.owned_ranges())
            return subtract(rest, self.glibc.likely_mapped(rest))
        except GdbheapError:
            return ranges

    @property
    def python_or_none(self) -> Pymalloc | None:
        """CPython's pymalloc, None when there is none or it is not known."""
        try:
            return self.python
        except GdbheapError:
            return None

    @property
    def mimalloc(self) -> Mimalloc | None:
        """CPython's own mimalloc; None when it is not in use."""
        return self._part("mimalloc", self._make_mimalloc) if self.target.refusal is None else None

    def _make_mimalloc(self) -> Mimalloc | None:
        python = self.python_or_none
        if not has_python(self.target) or (python is not None and python.in_use):
            return None
        other, facts = self.other_allocator, Facts()
        try:
            found = Mimalloc(self.target, facts)
        except Unsupported:
            return None
        # A library's segments look the same, but those of a free-threaded build.
        if other is not None and other.id == MIMALLOC and not found.is_free_threaded:
            return None
        self.facts.take(facts)
        return found

    @property
    def other_allocator(self) -> OtherAllocator | None:
        """The allocator that is there beside glibc's, or in its place; None when none shows."""
        try:
            idle = self.glibc.idle
        except GdbheapError:
            idle = True
        found: OtherAllocator | None = self._part("other allocator", lambda: find_other(self.target, idle))
        return found

    @property
    def runtimes(self) -> list[Runtime]:
        """The runtimes and servers that were recognised, with what is known of where their memory lies."""
        found: list[Runtime] = self._part("runtimes", self._find_runtimes)
        return found

    def _find_runtimes(self) -> list[Runtime]:
        return find_runtimes(self.target, self.other_allocator is not None)

    @property
    def chunks(self) -> _native.Chunks:
        """Every block of glibc's arenas."""
        return self.walked.walk()

    @property
    def walked(self) -> Glibc:
        """glibc's malloc after the walk over its arenas; what another allocator holds is not among them, and noted."""
        self.glibc.walk(self._labelled("walking glibc's heaps"))
        self._note_other()
        return self.glibc

    def _note_other(self) -> None:
        other, idle = self.other_allocator, self.glibc.idle
        if other is None and idle:
            cause = "nobody has called it, or because another allocator is used that cannot be recognised"
            self.note(
                f"glibc's malloc holds nothing, because {cause}: the memory of such an allocator counts as other memory"
            )
        elif other is not None:
            name, where = other.kind.name, f"{one_line(other.path)}, {other.evidence}"
            empty = f"malloc here is {name}'s ({where}) and glibc's own arenas are empty"
            self.note(
                f"{empty if idle else f'{name} is here too ({where})'}: {name}'s blocks are not walked and not counted"
            )

    @property
    def bins(self) -> Bins:
        """The bins of every arena, followed and checked."""
        follow = self._labelled("following the bins")
        found: Bins = self._part("bins", lambda: Bins(self.target.space, self.glibc, self.chunks, follow))
        return found

    def lists_of(self, chunks: Sequence[tuple[int, int, str]]) -> list[str | None]:
        """The free list that each chunk (header, size, state) is on, None for one that is on none."""
        return list_names(chunks, lambda: self.bins)

    @property
    def stacks(self) -> list[Stack]:
        """The threads' stacks, ascending."""
        found: list[Stack] = self._part("stacks", lambda: find_stacks(self.target))
        return found

    @property
    def stack_ranges(self) -> Ranges:
        """The threads' stacks, ascending, without those that lie in blocks of malloc: that memory is malloc's."""
        provided = [(stack.start, stack.end) for stack in self.stacks if stack.provided]
        if provided:
            with suppress(GdbheapError):
                chunks = [(chunk.base, chunk.end) for chunk in self.mapped]
                provided = subtract(provided, sorted(self.glibc.owned_ranges() + chunks))
        return sorted(self._own_stacks() + provided)

    def _own_stacks(self) -> Ranges:
        return [(stack.start, stack.end) for stack in self.stacks if not stack.provided]

    def live_stacks(self) -> tuple[Ranges, Ranges]:
        """What may be in use of the threads' stacks, and above the stack pointers that lead to none of them: those are
        on stacks of coroutines or of signals, in a block of malloc up to its end."""
        loose = []
        for start, end in unbounded(self.target, self.stacks):
            (found,) = self.chunks.find_many([start])
            mapped = self.mapped_at(start)
            last = found[0] + found[1] if found is not None else mapped.end if mapped is not None else end
            loose.append((start, min(last, start + LARGEST_GUARDED)))
        return live_parts(self.target, self.stacks), loose

    @property
    def mapped(self) -> list[MappedChunk]:
        """glibc's mmapped chunks, ascending."""
        return self.glibc.find_mapped(subtract(self._anonymous(False), sorted(self._own_stacks() + self._arenas())))

    def mapped_at(self, address: int) -> MappedChunk | None:
        """The mmapped chunk that holds ``address``, or None."""
        return self.glibc.mapped_at(address) if self.mapped else None

    @property
    def interpreter(self) -> Interpreter:
        """CPython itself, whatever allocates its objects. Raises NotAPython, or Unsupported."""
        found: Interpreter = self._part("interpreter", self._make_interpreter)
        return found

    def _make_interpreter(self) -> Interpreter:
        python, mimalloc = self.python_or_none, self.mimalloc
        tagged = mimalloc is not None and mimalloc.is_free_threaded
        return Interpreter(self.target, self.facts, python.module if python is not None else None, tagged)

    @property
    def objects(self) -> Objects:
        """The Python objects. Raises NotAPython, or Unsupported."""

        found: Objects = self._part("objects", self._make_objects)
        return found

    def _make_objects(self) -> Objects:
        other = self.other_allocator
        interpreter, python = self.interpreter, self.python_or_none
        roots = Roots(self.target, interpreter.module, *self.live_stacks())
        unwalked = self.unwalked_ranges() if other is not None else []
        finding = self._labelled("looking for objects in memory that is not walked")
        pools = python.pools if python is not None else _native.read_pools(self.target.space, [], NO_POOL_SIZE, 16)
        parts = self.target, interpreter.release, pools, self.chunks, self.mapped
        return Objects(*parts, roots, self.facts, self.mimalloc, unwalked, finding, self.disclosure)

    @property
    def objects_or_none(self) -> Objects | None:
        """The Python objects, None when there are none or they are not known."""
        try:
            return self.objects
        except GdbheapError:
            return None

    @property
    def collector(self) -> Collector | None:
        """The state of the cyclic garbage collector, None where it is not found. Raises NotAPython, or Unsupported."""
        found: Collector | None = self._part("collector", self._find_collector)
        return found

    def _find_collector(self) -> Collector | None:
        data, head = self.interpreter.module.writable_ranges(), self.objects.layout.gc_head
        return find_collector(self.target.space, head, data, lambda: self.interpreter.threads.interpreters)

    @property
    def references(self) -> References:
        """The graph of all references. Raises NotAPython, or Unsupported."""
        draw = self._labelled("following references")
        found: References = self._part("references", lambda: References(self.objects, self.interpreter.threads, draw))
        return found

    @property
    def paths(self) -> Paths:
        """Names for what the graph of references leads to. Raises NotAPython, or Unsupported. They keep what they have
        said: there are others for those who may not see contents."""
        name = "paths" if self.disclosure.contents else "paths without contents"
        found: Paths = self._part(name, lambda: Paths(self.references))
        return found

    def census(self) -> _native.Census:
        """The count of all Python objects, kept."""
        found: _native.Census = self._part("census", lambda: self.objects.census((), self.classifying, LISTED))
        return found

    def classifying(self, done: int, total: int) -> None:
        """Progress of a census."""
        if self.progress is not None:
            self.progress("classifying blocks", done, total)

    def _labelled(self, label: str) -> Callable[[int, int], None]:
        def report(done: int, total: int) -> None:
            if self.progress is not None:
                self.progress(label, done, total)

        return report

    def unowned_ranges(self) -> Ranges:
        """Writable private anonymous memory that is no arena, stack or .bss: where mmapped chunks lie."""
        return subtract(self._anonymous(), self.owned_ranges())

    def _anonymous(self, writable: bool = True) -> Ranges:
        """Private anonymous memory, what may not be written too if not ``writable``. The kernel keeps an mmapped chunk
        as several mappings when a part of it was given to madvise (numpy does so) or mprotect."""
        return joined([
            (mapping.start, mapping.end)
            for mapping in self.target.mappings
            if mapping.anonymous and mapping.private and mapping.readable and (mapping.writable or not writable)
            # To read the kernel's vdso would put a page of it into the process.
            and not mapping.is_kernels
        ])  # fmt: skip

    def unwalked_ranges(self) -> Ranges:
        """Memory that may be that of an allocator whose blocks are not walked."""
        return subtract(self.unowned_ranges(), sorted((chunk.base, chunk.end) for chunk in self.mapped))

    def owned_ranges(self) -> Ranges:
        """What stacks, arenas of glibc and of the interpreter, and .bss have; mapped chunks are not among it."""
        return sorted(self.stack_ranges + self._arenas())

    def _arenas(self) -> Ranges:
        """What arenas of glibc and of the interpreter, and .bss have."""
        owned = self.glibc.owned_ranges() + [pair for loaded in self.target.objects for pair in loaded.bss]
        python = self.python_or_none
        owned += python.ranges() if python else []
        return owned + (self.mimalloc.ranges() if self.mimalloc else [])

    @property
    def held(self) -> list[Held]:
        """Memory that is no heap, by the library whose static data points there; none where another allocator is known,
        or glibc's is not."""
        found: list[Held] = self._part("held", self._find_held)
        return found

    def _find_held(self) -> list[Held]:
        try:
            chunks = [(chunk.base, chunk.end) for chunk in self.mapped]
        except GdbheapError:
            return []
        if self.other_allocator is not None:
            return []
        return find_held(self.target, subtract(self.unowned_ranges(), sorted(chunks)))

    @property
    def versions(self) -> dict[str, str | None]:
        """The JSON's ``python`` and ``glibc``: versions as far as they are known, whatever the command was."""
        for ask in (lambda: self.glibc, lambda: self.interpreter):
            with suppress(GdbheapError):
                ask()
        facts = {fact.fact: fact.value for fact in self.facts.all()}
        return {"python": facts.get("python"), "glibc": facts.get("glibc")}

    def note(self, warning: str) -> None:
        """Add a warning to the answer, once."""
        if warning not in self._notes:
            self._notes.append(warning)

    @property
    def warnings(self) -> list[str]:
        """What a reader of the answer must know: from the target, the allocators and the answers."""
        told = [warning for name in ("glibc", "interpreter") for warning in _warnings_of(self._parts.get(name))]
        cut = self.target.cut_short
        found = self.target.warnings + told + self._notes + ([cut] if cut else [])
        return [self.disclosure.numbers(warning) for warning in found]

    @property
    def damage(self) -> list[Damage]:
        """All damage met so far. What a thread that stands inside malloc may have left half done is named so. None is
        listed where reading ended early: what was not read looks the same."""
        if self.target.cut_short:
            return []
        parts = [self._parts[name] for name in ("glibc", "bins") if name in self._parts]
        found = [damage for part in parts for damage in part.damage]
        python = [damage for name in ("pymalloc", "mimalloc") for damage in _damage_of(self._parts.get(name))]
        whole = self.target.damage + (self._excused(found) if found else []) + python
        return [self.disclosure.damage(damage) for damage in whole]

    def _excused(self, found: list[Damage]) -> list[Damage]:
        changes: Changes = self._part("changes", lambda: Changes(self.target, self.glibc))
        caught = changes.explain(found, self.chunks.arena_of)
        if any(caught):
            names = ", ".join(str(thread.tid) for thread in changes.inside[:5]) or "one that holds an arena's lock"
            self.note(f"stopped inside malloc: thread {names}; lists and sizes may be half changed there")
        return [
            replace(damage, what=f"{CAUGHT}: {damage.what}") if is_caught else damage
            for damage, is_caught in zip(found, caught)
        ]

    @property
    def partial(self) -> bool:
        """Whether an answer may lack something: then the exit status is 1."""
        if self.target.partial or self.target.cut_short:
            return True
        return any(not damage.what.startswith(CAUGHT) for damage in self.damage)


def _is_place(target: Target, number: int) -> bool:
    """Whether a number is an address in a mapping, or the end of one."""
    find = target.mappings.find
    return find(number) is not None or find(number - 1) is not None


def _damage_of(part: Any) -> list[Damage]:
    return part.damage if part is not None else []


def _warnings_of(part: Any) -> list[str]:
    return part.warnings if part is not None else []
