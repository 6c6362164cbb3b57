"""Sample a running process repeatedly, without stopping it.

A full read at the beginning finds the allocators' data structures; after it, short reads are enough. Expensive work is
done so seldom that it takes only a small share of the time."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, NamedTuple

from gdbheap import _native
from gdbheap.allocators.glibc.allocator import GlibcAllocator
from gdbheap.allocators.glibc.running import ArenaNow, RunningMalloc
from gdbheap.allocators.mimalloc.allocator import MimallocAllocator
from gdbheap.allocators.mimalloc.running import RunningMimalloc, SegmentsNow
from gdbheap.allocators.pymalloc.allocator import PymallocAllocator
from gdbheap.allocators.pymalloc.running import RunningPymalloc
from gdbheap.dataclass import dataclass
from gdbheap.errors import GdbheapError, NoTarget, NotPermitted, reason_of
from gdbheap.heap import Heap
from gdbheap.host.procfs import PM_PRESENT, TABLE_LIMIT, Named, pagemap
from gdbheap.host.usage import Exact, Usage, exact_of, libraries_of, run_time, usage_of
from gdbheap.machines.machine import Machine
from gdbheap.refusals import refusal
from gdbheap.sampling.sample import (
    ArenaSample,
    ClassSample,
    MallocSample,
    MmappedSample,
    PoolsSample,
    Sample,
)
from gdbheap.targets import stopping
from gdbheap.targets.mappings import parse_maps
from gdbheap.targets.process import Preparation, Process, program_of
from gdbheap.targets.running_memory import RunningMemory

__all__ = ["SampleTime", "Pacer", "SampledProcess"]

# The largest shares of one processor's time: for most work, for a full read, and for full reads after some that found
# nothing.
SHARE, LOOK_SHARE, LEAST_SHARE = 0.01, 0.2, 0.001
STOPS = 5
MAX_NAME = 60
NAP_SECONDS = 0.001
# The seconds for which a process is given time to run. The kernel's slowest clock ticks every 10 ms, most tick every 1
# or 4 ms.
RUN_SECONDS = 0.005


class SampleTime(NamedTuple):
    """The time of a sample, as two numbers of seconds: since 1970 (``time``) and since the series began
    (``offset``).
    """

    time: float
    offset: float


class Pacer:
    """Limits expensive work so that it takes at most ``share`` of one processor's time: a fraction, such as 0.01."""

    def __init__(self, share: float = SHARE) -> None:
        self._share = share
        self._next = 0.0

    @property
    def is_due(self) -> bool:
        """Whether enough time has passed since the work was last done."""
        return time.monotonic() >= self._next

    def slow_down(self) -> None:
        """Halve the share of time, because the work found nothing new."""
        self._share = max(self._share / 2, LEAST_SHARE)

    def do(self, work: Callable[[], Any]) -> Any:
        """Do the work now, even if it is not due, and return its result. The time that it took decides when it is due
        again.
        """
        before = time.process_time()
        try:
            return work()
        finally:
            self._next = time.monotonic() + (time.process_time() - before) / self._share


@dataclass(frozen=True)
class AllocatorPlaces:
    """The data structures of allocators that were found in a process.

    An allocator is None if the process lacks it or has not used it yet."""

    malloc: RunningMalloc | None
    python: RunningPymalloc | RunningMimalloc | None
    target: dict[str, Any]
    memory: RunningMemory

    @property
    def space(self) -> _native.Space:
        """The native reader of the process's memory."""
        return self.memory.space

    @property
    def is_whole(self) -> bool:
        """Whether the data structures of all allocators that the process can have were found."""
        return self.malloc is not None and (self.python is not None or not self.target.get("python"))

    def knows_more_than(self, other: AllocatorPlaces) -> bool:
        """Return whether this result includes an allocator that ``other`` lacks.

        malloc is compared first. Python's own allocator decides only if both results include malloc, or neither does.
        """
        return [bool(self.malloc), bool(self.python)] > [bool(other.malloc), bool(other.python)]


class SampledProcess:
    """A process that is sampled. Raises NoTarget, NotPermitted, Unsupported if it cannot be sampled.

    ``limit``: the most seconds for which it may be stopped, None for no limit. ``may_be_traced``: whether another
    program may trace the process now; its memory is then read once that tracer is gone. ``refused``: why its memory
    cannot be read, so that only the kernel's figures are known; None if the memory can be read.
    """

    def __init__(self, process: Named, limit: float | None = None, may_be_traced: bool = False) -> None:
        self.folder = refusal.open_folder(process)
        self.pid = self.folder.pid
        self.machine: Machine = refusal.check(self.folder, may_be_traced)
        self.refused: str | None = None
        self.found: AllocatorPlaces | None = None
        self._limit = limit
        self._image: tuple[str, int, int] | None = None
        self._libraries: frozenset[bytes] = frozenset()
        self._maps, self._rollup, self._lists, self._pools = Pacer(), Pacer(), Pacer(), Pacer()
        self._looks, self._files = Pacer(LOOK_SHARE), Pacer()

    @property
    def program(self) -> str:
        """The name of its program, as in ps and top; "" once the process has ended."""
        with suppress(GdbheapError, OSError):
            return program_of(self.folder)[:MAX_NAME] or self.folder.thread_name(self.pid)
        return ""

    # Full reads.

    def usage(self) -> Usage:
        """Return the kernel's current figures for the process. Raises NoTarget if it has ended."""
        try:
            return usage_of(self.folder)
        except (FileNotFoundError, ProcessLookupError):
            raise NoTarget(f"process {self.pid} has ended") from None

    def look(self, usage: Usage) -> str | None:
        """Find the allocators' data structures if not all are known. Return the kind of the event to report.

        "start": the first result; "exec": the process now runs another program; "found": another allocator was found;
        None: nothing new. Raises NoTarget."""
        if usage.image is None:
            return None
        is_other = self._image is not None
        if usage.image != self._image:
            self._image, self.found, self.refused, self._looks = usage.image, None, None, Pacer(LOOK_SHARE)
        # What refused a look may be gone at the next one, for example another tracer.
        if not self._may_know_more() or not self._looks.is_due:
            return None
        found: AllocatorPlaces = self._looks.do(self._look)
        known, self.found = self.found, found
        if known is not None and not found.knows_more_than(known):
            self._looks.slow_down()
        if known is None:
            return "exec" if is_other else "start"
        return "found" if found.knows_more_than(known) else None

    def _may_know_more(self) -> bool:
        if self.found is None:
            return True
        if self.found.is_whole or not self._maps.is_due:
            return False
        libraries: frozenset[bytes] = self._maps.do(lambda: libraries_of(self.folder))
        if libraries != self._libraries:
            self._libraries, self._looks = libraries, Pacer(LOOK_SHARE)
        # Search even if no library was added: an earlier read may have failed because memory changed, and Python's
        # pools appear only with its first objects.
        return True

    def _look(self) -> AllocatorPlaces:
        self._libraries, self.refused = libraries_of(self.folder), None
        try:
            self._check_memory()
            return self._find()
        except NoTarget:
            raise
        except Exception as error:
            self.refused = reason_of(error)
            return AllocatorPlaces(None, None, self._described(), self._memory())

    def _check_memory(self) -> None:
        """Check that the process's memory can be read. Raises NotPermitted, NoTarget."""
        try:
            self.folder.check_memory()
        except OSError as error:
            raise refusal.explain(self.folder, error) from None

    def _find(self) -> AllocatorPlaces:
        process = Process(self.folder)
        heap = Heap(process)
        malloc = heap.find_allocator(GlibcAllocator)
        self.machine = process.machine
        return AllocatorPlaces(
            None if malloc is None else RunningMalloc.of(malloc.malloc, self.machine),
            self._python_books(heap),
            {**process.describe(), **heap.versions},
            self._memory(),
        )

    def _python_books(self, heap: Heap) -> RunningPymalloc | RunningMimalloc | None:
        mimalloc = heap.find_allocator(MimallocAllocator)
        if mimalloc is not None:
            return RunningMimalloc.of(mimalloc.mimalloc, self.machine)
        pymalloc = heap.find_allocator(PymallocAllocator)
        return None if pymalloc is None else RunningPymalloc.of(pymalloc.pymalloc, self.machine)

    def _described(self) -> dict[str, Any]:
        """Return the description of a process whose memory cannot be read (perhaps only now, because another program
        traces it)."""
        found: dict[str, Any] = {"kind": "process", "pid": self.pid}
        with suppress(NotPermitted):
            preparation = Preparation(self.folder)
            found.update(exe=preparation.exe, **vars(preparation.identity))
        return found

    def _memory(self) -> RunningMemory:
        """Return a reader of the process's memory. It leaves out mappings whose pages the kernel might never
        deliver.
        """
        memory = RunningMemory(self.folder, self.machine, self.machine.kernel_start)
        self._renew(memory)
        return memory

    def _renew(self, memory: RunningMemory) -> None:
        with suppress(OSError):
            memory.renew(self.folder.read("maps", TABLE_LIMIT))

    def _renew_memory(self) -> None:
        found = self.found
        if found is not None and (found.malloc or found.python) and self._files.is_due:
            self._files.do(lambda: self._renew(found.memory))

    # Samples.

    def sample(self, moment: SampleTime, usage: Usage, stop: bool = False) -> Sample:
        """Take a sample; with ``stop`` malloc's arenas are read while the process is stopped. Raises NoTarget if the
        process has ended, and the errors of stopping it."""
        if usage.image != self._image:
            # The process now runs another program, so the data structures that were found do not exist any more.
            self.found = None
        self._renew_memory()
        exact: Exact | None = self._rollup.do(lambda: exact_of(self.folder)) if self._rollup.is_due else None
        malloc, stopped = self._standing() if stop else (self._malloc(usage), None)
        rss = usage.rss if exact is None or exact.rss is None else exact.rss
        return Sample(
            self.pid, round(moment.time, 6), round(moment.offset, 6), rss, exact.pss if exact else None,
            usage.anonymous, usage.file, usage.shared, usage.swap, usage.brk, usage.minor_faults, usage.major_faults,
            usage.threads, malloc, self._python(usage), stopped,
        )  # fmt: skip

    @property
    def _books(self) -> RunningMalloc | None:
        return None if self.found is None else self.found.malloc

    def _malloc(self, usage: Usage) -> MallocSample | None:
        """Read malloc's arenas while the process runs. Return None if malloc's data structures were not found."""
        books, found = self._books, self.found
        if books is None or found is None:
            return None
        if not self._lists.is_due:
            return _used(_malloc_sample(books, found.space, *books.arenas(found.space, False)))
        arenas, closed = self._lists.do(lambda: self._followed(books, found.space, usage))
        return _used(_malloc_sample(books, found.space, arenas, closed))

    def _followed(self, books: RunningMalloc, space: _native.Space, before: Usage) -> tuple[list[ArenaNow], bool]:
        """Return the arenas with the figures from their free lists, and whether the circular list of arenas ended where
        it began.

        A process with one thread takes no lock in malloc. While it waits for a processor, it may be in the middle of an
        operation. Two reads of the lists are then equal, but both wrong. So an arena counts as certain only if it is
        unchanged after the process has run.
        """
        arenas, closed = books.arenas(space, True)
        after = self.usage()
        if before.threads > 1 or not (before.runs or after.runs):
            return arenas, closed
        ran = run_time(self.folder)
        time.sleep(RUN_SECONDS)
        again = {arena.address: arena for arena in books.arenas(space, True)[0]}
        has_run = ran is not None and run_time(self.folder) != ran
        return [
            arena if has_run and again.get(arena.address) == arena else _doubtful(arena) for arena in arenas
        ], closed

    def _standing(self) -> tuple[MallocSample | None, float | None]:
        """Read the arenas while all threads are stopped. Return (figures of the arenas, seconds for which the process
        was stopped).

        If a thread was inside malloc or a figure changed meanwhile, try again, up to STOPS times in total. Return
        (None, None) if malloc's data structures are not known. Raises the errors of stopping the process.
        """
        books, found = self._books, self.found
        if books is None or found is None:
            return None, None
        total = 0.0
        for attempt in range(STOPS):
            sample, inside, seconds = self._stopped(books, found)
            total += seconds
            if not inside or attempt == STOPS - 1:
                break
            time.sleep(NAP_SECONDS)
        return _used(sample), round(total, 6)

    def _stopped(self, books: RunningMalloc, found: AllocatorPlaces) -> tuple[MallocSample, bool, float]:
        with stopping.undisturbed():
            try:
                stop = stopping.patiently(self.folder, lambda: _native.Stop(self.folder, self._limit))
            except TimeoutError as error:
                raise stopping.not_stopped(self.folder, self._limit, error) from None
            except OSError as error:
                raise refusal.explain(self.folder, error) from None
            try:
                inside = books.is_inside([thread.program_counter for thread in stop.threads])
                sample = _malloc_sample(books, found.space, *books.arenas(found.space, True, not inside))
            finally:
                stop.release()
        late = stop.expired
        return sample if not late else replace(sample, doubtful=True), inside or sample.is_doubtful, stop.seconds or 0.0

    def _python(self, usage: Usage) -> PoolsSample | None:
        """Return the figures of Python's own allocator; None if there are none. If the process has swapped pages, its
        pools are not read, because that would bring pages back into memory."""
        if self.found is None or self.found.python is None:
            return None
        books, may_read = self.found.python, not usage.swap and self._pools.is_due
        if isinstance(books, RunningMimalloc):
            return self._segments(books, self.found.space) if may_read else None
        return self._tables(books, self.found.space, may_read)

    def _segments(self, books: RunningMimalloc, space: _native.Space) -> PoolsSample | None:
        with suppress(_native.Fault, OSError):
            now = self._pools.do(lambda: self._read_segments(books, space))
            classes = _classes(now.classes)
            return PoolsSample(MimallocAllocator.name, now.segments, now.bytes, now.pages, classes=classes, odd=now.odd)
        return None

    def _read_segments(self, books: RunningMimalloc, space: _native.Space) -> SegmentsNow:
        path, page = self.folder.path("pagemap"), self.machine.page

        def is_there(address: int) -> bool:
            return any(entry & PM_PRESENT for entry in pagemap(path, address // page, 1))

        return books.now(space, parse_maps(self.folder.read("maps", TABLE_LIMIT)), is_there)

    def _tables(self, books: RunningPymalloc, space: _native.Space, may_read: bool) -> PoolsSample | None:
        now = books.now(space)
        if now is None:
            return None
        found = PoolsSample(
            PymallocAllocator.name, len(now.arenas), len(now.arenas) * books.arena_size, now.pools, now.free_pools,
            doubtful=now.doubtful,
        )  # fmt: skip
        if not may_read or now.doubtful:
            return found
        with suppress(_native.Fault, OSError):
            read = self._pools.do(lambda: books.classes(space, now))
            return replace(found, classes=_classes(read.classes), odd=read.odd)
        return found


def _classes(rows: Sequence[_native.SizeClass]) -> list[ClassSample]:
    return [ClassSample(row.block_size, row.groups, row.used, row.free) for row in rows]


def _doubtful(arena: ArenaNow) -> ArenaNow:
    """Return the arena marked as doubtful, without the figures from its free lists."""
    return arena._replace(in_use=None, trim=None, doubtful=True)


def _used(sample: MallocSample) -> MallocSample | None:
    """Return the sample; None if the program has never used glibc's malloc.

    A program with jemalloc never uses glibc's malloc. The memory of its own malloc is then unknown, not 0.
    """
    return sample if sample.system or sample.is_doubtful else None


def _malloc_sample(books: RunningMalloc, space: _native.Space, arenas: list[ArenaNow], closed: bool) -> MallocSample:
    mmapped = books.mmapped(space)
    rows = [ArenaSample(*arena) for arena in arenas]
    return MallocSample(rows, None if mmapped is None else MmappedSample(**vars(mmapped)), not closed)
