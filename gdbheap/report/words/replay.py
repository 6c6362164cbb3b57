"""The text of ``gdbheap replay``: the figures of each replay, and the best setting."""

from __future__ import annotations

import os
import shlex

from gdbheap.report.text.numbers import UNKNOWN, counted
from gdbheap.report.text.programs import program_text
from gdbheap.report.text.style import Style
from gdbheap.report.text.tables import Column, join, table
from gdbheap.tracing.log import BY_TIME
from gdbheap.tracing.replay import Gaps, Replayed, Run
from gdbheap.tracing.replay_settings import GLIBC, PREFIX

__all__ = ["line_of", "render"]

LEFT = True
COLUMNS = (
    Column("allocator", LEFT), Column("peak RSS"), Column("final RSS"), Column("system"), Column("in use"),
    Column("peak holes"), Column("final holes"), Column("seconds"), Column("ns per call"),
)  # fmt: skip


def render(answer: Replayed, style: Style) -> str:
    """Return the text of the answer. It begins with the setting that takes the least memory, and with the recorded
    program. A table has a row for each setting. The meaning of the figures follows, then the environment variables
    for the best setting.
    """
    rows = [_row(run, style) for run in answer.rows]
    sentences = [*_notes(answer), *_failures(answer.rows), *_advice(answer)]
    about = f"{_least(answer, style)} {_about(answer, style)}" if rows else _about(answer, style)
    notes = "\n".join(map(style.filled, sentences))
    return join(style.filled(about), table(COLUMNS, rows, style), notes, line_of(answer))


def _blocks(calls: int) -> str:
    """Return the beginning of a sentence about the blocks of the calls: "Its block was" or "Their blocks were"."""
    return "Its block was" if calls == 1 else "Their blocks were"


def line_of(answer: Replayed) -> str:
    """Return the environment variables for the best setting, as a line to type before the command; "" if no setting is
    better than the first."""
    if answer.best is None:
        return ""
    run = answer.rows[answer.best]
    words = [f"LD_PRELOAD={shlex.quote(run.preloaded)}"] if run.preloaded else []
    return " ".join(["   ", *words, *([f"GLIBC_TUNABLES={run.tunables}"] if run.tunables else [])])


def _about(answer: Replayed, style: Style) -> str:
    program = program_text(answer.words, answer.exe)
    return (
        f"Process {answer.pid} ({program}) made {counted(answer.calls, 'call')} in"
        f" {counted(answer.threads, 'thread')}. The requested bytes in use were at most"
        f" {style.bytes(answer.peak_bytes)}, after call {answer.peak_call:,}, and {style.bytes(answer.live_bytes)} at"
        " the end."
    )


def _row(run: Run, style: Style) -> list[str]:
    if run.failure is not None:
        return [_name(run), *[UNKNOWN] * (len(COLUMNS) - 1)]
    return [
        _name(run),
        _peak(run, style),
        style.size(run.final_rss),
        style.size(run.system),
        style.size(run.in_use),
        _gaps(run.at_peak, style),
        _gaps(run.at_end, style),
        UNKNOWN if run.seconds is None else f"{run.seconds:.2f}",
        UNKNOWN if run.ns_a_call is None else f"{run.ns_a_call:.0f}",
    ]


def _name(run: Run) -> str:
    """Return a run's name: the allocator, then malloc's tunables without their common prefix."""
    return " ".join([run.allocator, *(part.removeprefix(PREFIX) for part in run.tunables.split(":") if part)])


def _peak(run: Run, style: Style) -> str:
    if run.rounds == 1:
        return style.size(run.peak_rss)
    return f"{style.size(run.least_peak_rss)} to {style.size(run.most_peak_rss)}"


def _gaps(gaps: Gaps | None, style: Style) -> str:
    return UNKNOWN if gaps is None else f"{style.size(gaps.hole_bytes)} in {gaps.hole_count:,}"


def _notes(answer: Replayed) -> list[str]:
    """Return sentences about the limitations of the figures, such as calls that were left out of the replay."""
    notes = []
    if answer.film is not None and answer.film.pictures:
        film = answer.film
        page = os.path.join(film.folder, "index.html")
        notes.append(f"{counted(film.pictures, 'picture')}, one after every {counted(film.every, 'call')}: {page}.")
    if not answer.filled:
        notes.append(
            "The replay did not write to the blocks: only pages to which malloc itself writes are resident (--fill "
            "writes to the blocks)."
        )
    if answer.stopped is not None:
        notes.append(f"The replay was ended after call {answer.stopped:,}.")
    if answer.inherited:
        calls = counted(answer.inherited, "call was", "calls were")
        notes.append(f"{calls} made by the ancestors of the process before they forked.")
    if answer.order == BY_TIME and answer.threads > 1:
        notes.append(
            "The calls were recorded without a lock and are ordered by their timestamps. The replayed heap resembles "
            "the program's heap, but individual chunks may differ."
        )
    if answer.unknown and answer.order == BY_TIME:
        notes.append(
            f"Left out: {counted(answer.unknown, 'call')}. {_blocks(answer.unknown)} allocated before the recording "
            "began, or belonged to another thread at the time of the call (the order by timestamps is not exact)."
        )
    elif answer.unknown:
        notes.append(
            f"Left out: {counted(answer.unknown, 'call')}. {_blocks(answer.unknown)} allocated by the parent process "
            "before the recording."
        )
    if answer.lost:
        notes.append(
            f"{counted(answer.lost, 'call')} could not be recorded: from the first of them on, the replay may differ "
            "from the program."
        )
    if not answer.is_whole:
        notes.append("The log is damaged or was cut off: only the calls before the damage were replayed.")
    if not answer.fixed:
        notes.append(
            "Addresses differ from run to run, because the kernel does not allow gdbheap to fix the addresses. "
            "Figures differ by a"
            " few pages."
        )
    return notes


def _failures(runs: list[Run]) -> list[str]:
    failed = [f"{_name(run)} could not make all calls: the run {run.failure}." for run in runs if run.failure]
    short = [
        f"{_name(run)} returned no memory for {counted(run.failed, 'call')} that returned memory in the recording."
        for run in runs
        if run.failed
    ]
    return failed + short


def _least(answer: Replayed, style: Style) -> str:
    """Return a sentence about the setting with which the program uses the least memory."""
    first = answer.rows[0]
    if first.peak_rss is None:
        return f"{_name(first)} could not make all calls."
    if len(answer.rows) < 2:
        return f"With {_name(first)}, peak RSS is {_peak(first, style)}."
    if answer.best is None:
        peak = f"peak RSS {_peak(first, style)}"
        return f"No other run uses significantly less memory than {_name(first)} ({peak})."
    run = answer.rows[answer.best]
    least, most = first.peak_rss or 0, run.most_peak_rss or 0
    percent = 100 * (least - most) / least
    less = f"{percent:.0f} % less than with {_name(first)}"
    return f"With {_name(run)}, the program uses at most {style.bytes(most)}, {less}."


def _advice(answer: Replayed) -> list[str]:
    """Return a sentence above the environment variables for the best setting; no sentence if there is none."""
    if answer.best is None:
        return []
    run = answer.rows[answer.best]
    if run.allocator == GLIBC or not run.preloaded:
        return ["Start the program with:"]
    return ["Install the allocator where the program runs, and start the program with:"]
