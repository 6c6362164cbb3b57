"""Replay a program's calls under each installed allocator, and under each glibc tunable that could matter."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from gdbheap.tracing.replay import Job, Replayed, Run, run
from gdbheap.tracing.replay_settings import Setting, found_allocators

__all__ = ["settings", "what_if"]

# Allocators other than glibc return memory after a delay, so that no two runs are the same.
ROUNDS = 3
THRESHOLD = 128 << 10
# Smaller differences are noise. The noise is this share of the first row's peak, but at least this many bytes.
SHARE, BYTES = 0.02, 256 << 10


def settings(base: Setting, threads: int) -> list[Setting]:
    """Return the settings to try: the program's own first, then the alternatives.

    The thresholds have glibc's initial values. glibc does not raise a threshold that is set (mallopt(3))."""
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
    """Replay the calls under each setting and return the answer. ``tell``: a function that gets a line before each
    setting. If Ctrl-C interrupts, the answer has the runs so far.
    """
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
    """Replay the calls under one setting, ROUNDS times if the allocator is not glibc. Return the run with the median
    peak, and whether addresses were the same in each run."""
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
    """Return the index of the run with the lowest peak. Return None if its peak is not lower than the first run's by
    more than noise.

    If runs differ only by noise, the first of them is returned.
    """
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
