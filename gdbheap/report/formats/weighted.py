"""Write stacks with weights as folded lines or in speedscope's format; ``flame.py`` draws them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from gdbheap import __version__
from gdbheap.errors import one_line

if TYPE_CHECKING:
    from gdbheap.stack_frames import StackFrame
    from gdbheap.stacks import Weighted

__all__ = ["LARGEST", "LONGEST", "NO_STACK", "OTHER_STACKS", "folded", "label", "speedscope"]

NO_STACK, OTHER_STACKS = "[no stack]", "[other stacks]"
# The most characters of a frame, and the most bytes of all folded lines except OTHER_STACKS: a target may have deep
# stacks of functions with long names.
LONGEST, LARGEST = 300, 64 << 20
SCHEMA = "https://www.speedscope.app/file-format-schema.json"
# The units that speedscope knows. Other values are plain numbers.
UNITS = ("bytes", "microseconds", "milliseconds", "nanoseconds", "seconds")
PYTHON = "python"


def label(frame: StackFrame) -> str:
    """Return a frame on one line of at most LONGEST characters: ``load (app.py:41)`` if its source is known, else the
    function's name.
    """
    if frame.kind != PYTHON and frame.line is None:
        return one_line(frame.name, LONGEST) or "?"
    line = "" if frame.line is None else f":{frame.line}"
    return one_line(f"{frame.name} ({frame.file.rsplit('/', 1)[-1]}{line})", LONGEST)


def folded(stacks: Sequence[Weighted]) -> Iterator[bytes]:
    """Yield one line ``outer;inner weight`` for each stack, largest first, encoded.

    Stacks whose text is the same share a line, with the sum of their weights. If the lines have more than LARGEST
    bytes, the last line has the weight of the stacks that do not fit.
    """
    texts = _texts(stacks)
    sums: dict[tuple[bytes, ...], int] = {}
    for frames, weight, _calls in stacks:
        names = tuple([texts[id(frame)] for frame in frames]) or (NO_STACK.encode(),)
        sums[names] = sums.get(names, 0) + weight
    room, others = LARGEST, 0
    for names, weight in sorted(sums.items(), key=lambda row: -row[1]):
        end = b" %d\n" % weight
        size = sum(map(len, names)) + len(names) - 1 + len(end)
        if size > room:
            others += weight
            continue
        room -= size
        yield b";".join(names) + end
    if others:
        yield b"%s %d\n" % (OTHER_STACKS.encode(), others)


def _texts(stacks: Sequence[Weighted]) -> dict[int, bytes]:
    """Return the text of each frame in a folded line, by the frame's ``id``. Equal texts are the same object."""
    known = {id(frame): frame for frames, _weight, _calls in stacks for frame in frames}
    found: dict[int, bytes] = {}
    same: dict[bytes, bytes] = {}
    for number, frame in known.items():
        text = label(frame).replace(";", ":").encode()
        found[number] = same.setdefault(text, text)
    return found


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
