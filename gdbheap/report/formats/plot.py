"""Draw recordings as a picture with one panel for each process. This needs matplotlib, which is imported on use."""

from __future__ import annotations

import io
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from datetime import datetime, timezone
from html import escape
from typing import Any

from gdbheap.errors import Unsupported, one_line
from gdbheap.files import temporary_folder
from gdbheap.report.text.numbers import size_text
from gdbheap.sampling.curves import Curve, ProcessCurves

__all__ = ["FIGURES", "FORMS", "PALETTE", "alternative", "picture", "title_of"]

FORMS = ("svg", "png", "html")
FIGURES = {
    "rss": "resident memory (RSS)",
    "system": "malloc: memory from the kernel",
    "in_use": "malloc: in use",
    "pool_bytes": "Python's arenas",
    "pool_used": "Python's blocks in use",
}
# Colours on a white background. A page replaces them by variables with the same names, one value for each colour
# scheme.
PALETTE = {
    "ink": "#1f2328", "grid": "#d1d9e0", "rss": "#57606a", "system": "#0550ae", "in_use": "#1a7f37",
    "pool_bytes": "#8250df", "pool_used": "#bf3989", "mark": "#bc4c00",
}  # fmt: skip
# (outer curve, inner curve): the memory between them is allocated but not in use.
GAPS = (("system", "in_use"), ("pool_bytes", "pool_used"))
STYLES = {"rss": "--", "system": "-", "in_use": "-", "pool_bytes": "-", "pool_used": "-"}
MARKS = {"snapshot": "v", "exec": "D", "failed": "x", "end": "|"}
WIDTH, PANEL_HEIGHT, HEAD_HEIGHT, DOTS = 10.0, 3.6, 0.5, 120
SHADE, MAX_LINES = 0.22, 7
# Variables that name matplotlib's settings and cache. The first one names a folder for the settings and the cache.
SETTINGS = ("MPLCONFIGDIR", "MATPLOTLIBRC", "MPLBACKEND")
MISSING = "drawing needs matplotlib, which is not installed next to gdbheap: pip install 'gdbheap[plot]'"


def title_of(process: ProcessCurves) -> str:
    """Return the title of a process's panel, such as "process 1234, python3.11"."""
    return f"process {process.pid}" + (f", {one_line(process.program, 60)}" if process.program else "")


def alternative(processes: Sequence[ProcessCurves]) -> str:
    """Return a text that describes the curves of the picture, for people who cannot see it."""
    return ". ".join(f"{title_of(process)}: {_told(process)}" for process in processes)


def _told(process: ProcessCurves) -> str:
    parts = []
    for name, curve in process.curves.items():
        first, last, peak = (size_text(size) for size in (curve.values[0], curve.values[-1], max(curve.values)))
        parts.append(f"{FIGURES[name]} from {first} to {last}, at most {peak}")
    return "; ".join(parts)


def picture(processes: Sequence[ProcessCurves], form: str) -> bytes:
    """Return the curves of the processes as a PNG or SVG picture. Raises Unsupported if matplotlib is not installed."""
    matplotlib = _matplotlib()
    with matplotlib.rc_context({
        "svg.fonttype": "none", "svg.hashsalt": "gdbheap", "font.size": 9, "text.color": PALETTE["ink"],
        "axes.edgecolor": PALETTE["ink"], "axes.labelcolor": PALETTE["ink"], "xtick.color": PALETTE["ink"],
        "ytick.color": PALETTE["ink"], "axes.spines.top": False, "axes.spines.right": False,
    }):  # fmt: skip
        drawn = _figure(matplotlib, processes)
        out = io.BytesIO()
        about = {"Date": None} if form == "svg" else None
        drawn.savefig(out, format=form, dpi=DOTS, transparent=form == "svg", metadata=about)
    return _readable(out.getvalue(), processes) if form == "svg" else out.getvalue()


def _matplotlib() -> Any:
    try:
        with _settings_of_ours():
            import matplotlib
            import matplotlib.dates
            import matplotlib.figure
            import matplotlib.ticker
    except ImportError:
        raise Unsupported(MISSING) from None
    return matplotlib


@contextmanager
def _settings_of_ours() -> Iterator[None]:
    """Let matplotlib be imported without settings of other users.

    matplotlib evaluates a file matplotlibrc in the current folder, even if another user put it there. So the import
    happens in another folder. If gdbheap runs as root, matplotlib also ignores the variables SETTINGS, and leaves no
    cache in a user's home.
    """
    here = os.open(".", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    kept = {name: os.environ.pop(name, None) for name in SETTINGS} if os.geteuid() == 0 else {}
    try:
        with temporary_folder() if kept else nullcontext() as folder:
            os.chdir("/")
            if folder is not None:
                os.environ[SETTINGS[0]] = folder
            yield
    finally:
        for name, value in kept.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value
        os.fchdir(here)
        os.close(here)


def _figure(matplotlib: Any, processes: Sequence[ProcessCurves]) -> Any:
    """Return a new figure with all panels, made without a window and without matplotlib's global state."""
    height = HEAD_HEIGHT + PANEL_HEIGHT * len(processes)
    drawn = matplotlib.figure.Figure(figsize=(WIDTH, height), layout="constrained")
    panels = drawn.subplots(len(processes), 1, squeeze=False)
    for (panel,), process in zip(panels, processes):
        _draw(matplotlib, panel, process)
    return drawn


def _draw(matplotlib: Any, panel: Any, process: ProcessCurves) -> None:
    for outer, inner in GAPS:
        if outer in process.curves and inner in process.curves:
            _shade(panel, process.curves[outer], process.curves[inner])
    for name, curve in process.curves.items():
        style = {"color": PALETTE[name], "linestyle": STYLES[name], "linewidth": 1.4}
        lone = {"marker": "o", "markersize": 3} if len(curve.values) == 1 else {}
        panel.plot(_moments(curve.times), curve.values, label=FIGURES[name], **style, **lone)
    _mark(panel, process)
    # Otherwise matplotlib would read text between two dollar signs as a formula.
    panel.set_title(title_of(process).replace("$", r"\$"), loc="left", fontsize=11)
    panel.set_ylim(bottom=0, top=max(process.peak, 1) * 1.08)
    panel.grid(axis="y", color=PALETTE["grid"], linewidth=0.6)
    panel.yaxis.set_major_locator(matplotlib.ticker.MultipleLocator(_step(process.peak)))
    panel.yaxis.set_major_formatter(matplotlib.ticker.FuncFormatter(lambda size, _place: size_text(int(size))))
    locator = matplotlib.dates.AutoDateLocator(tz=timezone.utc, minticks=3, maxticks=9)
    panel.xaxis.set_major_locator(locator)
    panel.xaxis.set_major_formatter(matplotlib.dates.ConciseDateFormatter(locator, tz=timezone.utc))
    panel.set_xlabel("UTC")
    panel.legend(loc="upper left", bbox_to_anchor=(1.01, 1), frameon=False, borderaxespad=0)


def _step(peak: int) -> int:
    """Return the distance between two grid lines: a power of two, in bytes."""
    step = 1
    while peak > step * MAX_LINES:
        step *= 2
    return step


def _shade(panel: Any, outer: Curve, inner: Curve) -> None:
    """Shade the area between two curves: memory that is not in use. The shading ends where one of the curves is
    unknown.
    """
    first, last = inner.times[0], inner.times[-1]
    known = [(time, value) for time, value in zip(outer.times, outer.values) if first <= time <= last]
    times, values = [time for time, _ in known], [value for _, value in known]
    label = "free" if outer.name == "system" else "Python: free"
    style = {"color": PALETTE[outer.name], "alpha": SHADE, "linewidth": 0, "label": label}
    panel.fill_between(_moments(times), list(inner.at(times)), values, **style)


def _mark(panel: Any, process: ProcessCurves) -> None:
    for kind, mark in MARKS.items():
        times = [event.time for event in process.events if event.kind == kind]
        if times:
            style = {"marker": mark, "linestyle": "", "color": PALETTE["mark"], "markersize": 7, "clip_on": False}
            panel.plot(_moments(times), [0] * len(times), label=kind, zorder=5, **style)


def _moments(times: Sequence[float]) -> list[datetime]:
    return [datetime.fromtimestamp(time, timezone.utc) for time in times]


def _readable(svg: bytes, processes: Sequence[ProcessCurves]) -> bytes:
    """Return the SVG with a title and a description for screen readers, and without the name of matplotlib's font."""
    text = svg.decode("utf-8")
    text = text[text.index("<svg") :]
    told = escape(alternative(processes))
    head = f"<title>Memory over time</title>\n <desc>{told}</desc>"
    text = re.sub(r"<svg ([^>]*)>", lambda found: f'<svg role="img" {found[1]}>\n {head}', text, count=1)
    return text.replace("'DejaVu Sans', ", "").encode("utf-8")
