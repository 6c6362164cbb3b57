"""A program's calls under each allocator that is there, and under each of glibc's tunables that could matter."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from gdbheap.tracing.replay import Job, Replayed, Run, run
from gdbheap.tracing.replay_settings import Setting, found_allocators

__all__ = ["settings", "what_if"]

# Others than glibc give memory back by the clock: no two runs are the same.
ROUNDS = 3
THRESHOLD = 128 << 10
# What is no more than this is chance: a part of the first row's peak, and bytes.
SHARE, BYTES = 0.02, 256 << 10


def settings(base: Setting, threads: int) -> list[Setting]:
    """As the program ran, then what could be set instead. The thresholds are glibc's own to begin with: setting them
    keeps them from rising (mallopt(3))."""
    glibc = Setting(None, base.tunables if base.library is None else {})
    tuned = [glibc.with_tunables(arena_max=1)] if threads > 1 else []
    tuned += [
        glibc.with_tunables(mmap_threshold=THRESHOLD),
        glibc.with_tunables(trim_threshold=THRESHOLD),
        glibc.with_tunables(tcache_count=0),
    ]
    others = [Setting(path) for path in found_allocators()]
    found = [base, glibc, *tuned, *others]
    return [setting for number, setting in enumerate(found) if setting not in found[:number]]


def what_if(job: Job, base: Setting, tell: Callable[[str], None]) -> Replayed:
    """A run for each setting; ``tell`` gets a line before each. Ctrl-C ends it with what there is."""
    runs: list[Run] = []
    fixed, is_cut = True, False
    wanted = settings(base, job.content.threads)
    try:
        for number, setting in enumerate(wanted):
            tell(f"{number + 1} of {len(wanted)}: {setting.allocator} {setting.tuned}".rstrip())
            found, is_fixed = _rounds(job, setting)
            runs.append(found)
            fixed = fixed and is_fixed
    except KeyboardInterrupt:
        if not runs:
            raise
        is_cut = True
    answer = job.answer(runs, fixed, best(runs))
    return replace(answer, ok=answer.ok and not is_cut)


def _rounds(job: Job, setting: Setting) -> tuple[Run, bool]:
    """The run in the middle, by its peak, and how far they are apart."""
    done = [run(job, setting, with_gaps=True)]
    while setting.library is not None and done[-1][0].failure is None and len(done) < ROUNDS:
        done.append(run(job, setting))
    failed = next((found for found, _last in done if found.failure is not None), None)
    if failed is not None:
        return failed, True
    runs = sorted((found for found, _last in done), key=lambda found: found.peak_rss or 0)
    middle = replace(
        runs[len(runs) // 2], rounds=len(runs), least_peak_rss=runs[0].peak_rss, most_peak_rss=runs[-1].peak_rss
    )
    return middle, all(last is not None and last.fixed for _found, last in done)


def best(runs: Sequence[Run]) -> int | None:
    """The number of the run that takes the least memory at most, if that is less than the first takes by more than they
    differ between runs; of several that are as good, the first."""
    first = runs[0]
    if first.least_peak_rss is None:
        return None
    noise = max(SHARE * first.least_peak_rss, BYTES)
    better = [
        number
        for number, found in enumerate(runs)
        if found.most_peak_rss is not None and found.most_peak_rss + noise < first.least_peak_rss
    ]
    if not better:
        return None
    least = min(runs[number].most_peak_rss or 0 for number in better)
    return next(number for number in better if (runs[number].most_peak_rss or 0) <= least + noise)
