"""Write stacks with weights as folded lines or in speedscope's format; ``flame.py`` draws them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from gdbheap import __version__
from gdbheap.errors import one_line

if TYPE_CHECKING:
    from gdbheap.stacks import StackFrame, Weighted

__all__ = ["NO_STACK", "folded", "label", "speedscope"]

NO_STACK = "[no stack]"
SCHEMA = "https://www.speedscope.app/file-format-schema.json"
# The units that speedscope knows. Other values are plain numbers.
UNITS = ("bytes", "microseconds", "milliseconds", "nanoseconds", "seconds")
PYTHON = "python"


def label(frame: StackFrame) -> str:
    """Return a frame on one line: ``load (app.py:41)`` for a Python frame, else the function's name."""
    if frame.kind != PYTHON:
        return one_line(frame.name) or "?"
    line = "" if frame.line is None else f":{frame.line}"
    return one_line(f"{frame.name} ({frame.file.rsplit('/', 1)[-1]}{line})")


def folded(stacks: Sequence[Weighted]) -> str:
    """Return one line ``outer;inner weight`` for each stack, largest first.

    Stacks whose text is the same share a line, with the sum of their weights.
    """
    sums: dict[str, int] = {}
    for frames, weight, _calls in stacks:
        line = ";".join(label(frame).replace(";", ":") for frame in frames) or NO_STACK
        sums[line] = sums.get(line, 0) + weight
    rows = sorted(sums.items(), key=lambda row: (-row[1], row[0]))
    return "".join(f"{line} {weight}\n" for line, weight in rows)


def speedscope(stacks: Sequence[Weighted], title: str, unit: str = "bytes", counts: str = "call") -> str:
    """Return a JSON document that speedscope.app opens.

    It contains a profile of the weights, and a second one of the counts if there are any. ``counts``: the noun, in the
    singular, for what is counted.
    """
    numbers: dict[StackFrame, int] = {}
    samples = [[numbers.setdefault(frame, len(numbers)) for frame in frames] for frames, _weight, _calls in stacks]
    profiles = [_profile(f"{title} ({unit})", unit, samples, [weight for _frames, weight, _calls in stacks])]
    amounts = [calls for _frames, _weight, calls in stacks]
    if unit != f"{counts}s" and any(amounts):
        profiles.append(_profile(f"{title} ({counts}s)", f"{counts}s", samples, amounts))
    document = {
        "$schema": SCHEMA,
        "shared": {"frames": [_frame(frame) for frame in numbers]},
        "profiles": profiles,
        "name": title,
        "activeProfileIndex": 0,
        "exporter": f"gdbheap {__version__}",
    }
    return json.dumps(document, separators=(",", ":")) + "\n"


def _profile(name: str, unit: str, samples: list[list[int]], weights: list[int]) -> dict[str, Any]:
    return {
        "type": "sampled",
        "name": name,
        "unit": unit if unit in UNITS else "none",
        "startValue": 0,
        "endValue": sum(weights),
        "samples": samples,
        "weights": weights,
    }


def _frame(frame: StackFrame) -> dict[str, Any]:
    known: dict[str, Any] = {"name": one_line(frame.name) or "?"}
    if frame.file:
        known["file"] = one_line(frame.file)
    if frame.line is not None:
        known["line"] = frame.line
    return known
