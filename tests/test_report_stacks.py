"""Weighted stacks as folded lines, as a flame graph and for speedscope, and sizes by powers of two: nothing is lost."""

from __future__ import annotations

import json
import random
from collections import Counter
from xml.etree import ElementTree

import pytest
from support.work import peak

from gdbheap.answers.accounting.records import from_json, to_json
from gdbheap.answers.distribution import SizeShare, distribution
from gdbheap.report.formats import flame
from gdbheap.report.formats import weighted as weighted_module
from gdbheap.report.formats.flame import HEAD, LARGEST, ROW, WIDTH, flame_graph
from gdbheap.report.formats.json import text_of
from gdbheap.report.formats.weighted import NO_STACK, folded, label, speedscope
from gdbheap.report.text import distribution as shown_distribution
from gdbheap.report.text.style import Style
from gdbheap.stack_frames import StackFrame
from gdbheap.stacks import NativeFrame, Weighted, merge

SVG = "{http://www.w3.org/2000/svg}"
NASTY = ["a;b", "new\nline", "<script>alert(1)</script>", "tab\tand space", "\x1b[31mred", "\udc80lone", "", "&amp;",
         'quote"', "]]>", "é", "\ufffe", "x" * 500, "\u202egnirts", "0", "name 12"]  # fmt: skip
UNITS = {"none", "nanoseconds", "microseconds", "milliseconds", "seconds", "bytes"}


def frame(rng: random.Random, names: list[str]) -> StackFrame:
    """Return a frame of either kind with one of the names."""
    if rng.random() < 0.5:
        return StackFrame(
            rng.choice(names), f"/srv/{rng.choice(names)}.py", rng.choice([None, rng.randrange(99)]), "python"
        )
    return StackFrame(rng.choice(names), "/usr/lib/libc.so.6", None, "native")


def weighted(rng: random.Random, count: int, depth: int, names: list[str]) -> list[Weighted]:
    """Return stacks of random depth, the empty one among them, with weights from 0 up over many powers of two."""
    frames = [frame(rng, names) for _ in range(len(names) * 2)]
    return [
        (
            tuple(rng.choice(frames) for _ in range(rng.randrange(depth))),
            int(2 ** rng.uniform(0, 30)) - 1,
            rng.randrange(9),
        )
        for _ in range(count)
    ]


@pytest.mark.parametrize("names", [NASTY, list("abcdefgh")], ids=["nasty", "plain"])
def test_folded_lines_add_up(names: list[str], rng: random.Random) -> None:
    """Check that each line is frames, a blank and a number, and that the lines have the frames and the sum of the
    stacks."""
    stacks = weighted(rng, 400, 12, names)
    sums: Counter[str] = Counter()
    for frames, weight, _calls in stacks:
        sums[";".join(label(one).replace(";", ":") for one in frames) or NO_STACK] += weight
    rows = [line.rpartition(" ") for line in b"".join(folded(stacks)).decode().split("\n")[:-1]]
    assert {text: int(weight) for text, _blank, weight in rows} == sums
    assert sum(int(weight) for _text, _blank, weight in rows) == sum(weight for _frames, weight, _calls in stacks)
    assert all(text.isprintable() and text for text, _blank, _weight in rows)
    depths = Counter(text.count(";") + 1 for text, _blank, _weight in rows)
    assert set(depths) <= {max(1, len(frames)) for frames, _weight, _calls in stacks}


def deep(rng: random.Random, count: int, depth: int, name: str) -> list[Weighted]:
    """Return stacks of two functions that call each other, no two of them alike."""
    pair = [StackFrame(f"{letter}{name}", "/srv/deep", None, "native") for letter in "ab"]
    ways = (rng.getrandbits(depth) for _ in range(count))
    return [(tuple(pair[way >> place & 1] for place in range(depth)), rng.randrange(1, 99), 1) for way in ways]


def test_folded_lines_have_a_limit(monkeypatch: pytest.MonkeyPatch, rng: random.Random) -> None:
    """Check that lines beyond the limit are one line, which comes last, and that the largest are kept."""
    stacks = deep(rng, 100, 50, "z" * rng.randrange(400, 2000))
    whole = sum(map(len, folded(stacks)))
    most = rng.randrange(whole // 9, whole // 2)
    monkeypatch.setattr(weighted_module, "LARGEST", most, raising=False)
    rows = [line.rpartition(b" ") for line in folded(stacks)]
    assert sum(len(line) + 2 + len(weight) for line, _blank, weight in rows[:-1]) <= most
    assert rows[-1][0] == weighted_module.OTHER_STACKS.encode()
    weights = [int(weight) for _line, _blank, weight in rows]
    assert sum(weights) == sum(weight for _frames, weight, _calls in stacks)
    largest = sorted((weight for _frames, weight, _calls in stacks), reverse=True)
    assert weights[:5] == largest[:5]
    assert all(len(name) <= weighted_module.LONGEST for line, *_ in rows for name in line.decode().split(";"))


def test_folded_lines_take_little_memory(rng: random.Random) -> None:
    """Check that the memory depends on the number of frames, and not on the length of their names."""
    stacks = deep(rng, 100, 500, "z" * 250)
    frames = sum(len(frames) for frames, _weight, _calls in stacks)

    def write() -> None:
        for _line in folded(stacks):
            pass

    # A word for each frame, and some lines.
    assert peak(write) < 16 * frames + 4 * max(map(len, folded(stacks)))


def cells(text: str) -> list[tuple[float, float, int, str]]:
    """Return (left, width, depth, title) of each cell, in percent of the whole."""
    root = ElementTree.fromstring(text)
    found = []
    for cell in root.findall(f"{SVG}svg"):
        left, width = (float(cell.attrib[name].rstrip("%")) for name in ("x", "width"))
        title = cell.find(f"{SVG}title")
        assert title is not None and title.text
        found.append((left, width, (int(cell.attrib["y"]) - HEAD) // ROW, title.text))
    return found


@pytest.mark.parametrize("names", [NASTY, list("abcdefgh")], ids=["nasty", "plain"])
def test_flame_graph_is_laid_out(names: list[str], rng: random.Random) -> None:
    """Check that the cells of each row are disjoint and below others, and that the outermost weigh as much as the
    stacks."""
    stacks = weighted(rng, 300, 9, names)
    text = flame_graph(stacks, rng.choice(NASTY))
    found = cells(text)
    assert "<script" not in text and found[0][:3] == (0, 100, 0)
    rows: dict[int, list[tuple[float, float]]] = {}
    for left, width, depth, _title in found:
        rows.setdefault(depth, []).append((left, left + width))
    for depth, row in rows.items():
        row.sort()
        assert all(first[1] <= second[0] + 0.001 for first, second in zip(row, row[1:]))
        if depth:
            assert all(any(a - 0.001 <= left and right <= b + 0.001 for a, b in rows[depth - 1]) for left, right in row)
    whole = sum(weight for _frames, weight, _calls in stacks)
    outermost: Counter[StackFrame] = Counter()
    for frames, weight, _calls in stacks:
        outermost.update({frames[0]: weight} if frames else {})
    largest = max(outermost, key=lambda one: outermost[one])
    first = next(cell for cell in found if cell[2] == 1 and cell[0] == 0)
    assert first[3].startswith(f"{label(largest)}\n")
    assert first[1] == pytest.approx(100 * outermost[largest] / whole, abs=0.001)
    assert sum(width for _left, width, depth, _title in found if depth == 1) == pytest.approx(
        100 * sum(outermost.values()) / whole, abs=0.01 * len(found)
    )


def test_small_cells_are_one(rng: random.Random) -> None:
    """Check that cells below a pixel are one cell that states their number, and that all calls are counted."""
    large = (StackFrame("large", "", None, "native"),)
    small = [((StackFrame(f"f{number}", "", None, "native"),), 1, 2) for number in range(rng.randrange(2, 50))]
    found = cells(flame_graph([(large, 1000 * WIDTH, 1), *small], "made up"))
    assert [title.split("\n")[0] for _left, _width, depth, title in found if depth == 1] == [
        "large",
        f"{len(small)} smaller functions",
    ]
    assert f"{2 * len(small)} calls" in found[-1][3]


def test_a_picture_has_its_limit(rng: random.Random) -> None:
    """Check that a picture of any number of stacks has about a MiB, and still the same sum."""
    names = [f"a_function_with_a_long_name_{number}" for number in range(40)]
    stacks = [(row[0], 1000, 1) for row in weighted(rng, 8_000, 60, names)]
    text = flame_graph(stacks, "many")
    assert len(text.encode()) <= LARGEST
    assert f"{len(stacks):,} calls" in cells(text)[0][3]


def test_a_picture_of_deep_stacks(monkeypatch: pytest.MonkeyPatch, rng: random.Random) -> None:
    """Check that frames too small to be drawn take no memory, and that each frame's name is cleaned once."""
    stacks, cleaned = deep(rng, 400, 500, "z" * 99), []
    monkeypatch.setattr(flame, "label", lambda frame: [label(frame), cleaned.append(frame)][0])
    assert peak(lambda: flame_graph(stacks, "deep")) < 8 * LARGEST
    assert Counter(cleaned) == Counter({frame for frames, _weight, _calls in stacks for frame in frames})


def test_a_picture_of_deep_chains(rng: random.Random) -> None:
    """Check that a picture shows the outer part of each stack that is too deep, and says how much is left out."""
    depth = rng.randrange(9_000, 20_000)
    chains = [([StackFrame(f"{name}{'z' * 400}", "", None, "native")] * depth, 1000, 7) for name in "ab"]
    text = flame_graph(chains, "chains")
    found = cells(text)
    assert LARGEST // 2 < len(text.encode()) <= LARGEST
    for name in "ab":
        drawn = [(row, left) for left, _width, row, title in found if title.startswith(f"{name}z")]
        edge, merged = drawn[0][1], "1 smaller function\n"
        left_out = [row for left, _width, row, title in found if left == edge and title.startswith(merged)]
        assert [row for row, _left in drawn] == list(range(1, left_out[0])) and len(left_out) == 1


def test_units() -> None:
    """Check that calls are not shown as bytes, and that a picture without stacks has a text instead."""
    stack = (StackFrame("one", "", None, "native"),)
    assert "3,000 calls" in flame_graph([(stack, 3000, 3000)], "counted", "calls")
    assert "2.9 KiB" in flame_graph([(stack, 3000, 1)], "weighed")
    assert "no stack" in flame_graph([], "empty")
    assert cells(flame_graph([], "empty"))[0][1] == 100


@pytest.mark.parametrize("unit", ["bytes", "calls"])
def test_speedscope(unit: str, rng: random.Random) -> None:
    """Check the schema of a file with sampled profiles, and that the stacks are unchanged."""
    stacks = weighted(rng, 200, 10, NASTY)
    document = json.loads(speedscope(stacks, "made up", unit))
    assert set(document) >= {"$schema", "shared", "profiles"} and document["exporter"].startswith("gdbheap ")
    assert document["$schema"] == "https://www.speedscope.app/file-format-schema.json"
    frames = document["shared"]["frames"]
    assert all(isinstance(one["name"], str) and one["name"] for one in frames)
    assert all(set(one) <= {"name", "file", "line", "col"} for one in frames)
    for profile in document["profiles"]:
        assert set(profile) == {"type", "name", "unit", "startValue", "endValue", "samples", "weights"}
        assert profile["type"] == "sampled" and profile["unit"] in UNITS
        assert len(profile["samples"]) == len(profile["weights"]) == len(stacks)
        assert all(0 <= number < len(frames) for sample in profile["samples"] for number in sample)
        assert profile["endValue"] == sum(profile["weights"])
    assert document["profiles"][0]["weights"] == [weight for _frames, weight, _calls in stacks]
    assert document["profiles"][0]["unit"] == ("bytes" if unit == "bytes" else "none")
    for (known, _weight, _calls), sample in zip(stacks, document["profiles"][0]["samples"]):
        assert [frames[number].get("line") for number in sample] == [one.line for one in known]


def test_distribution(rng: random.Random) -> None:
    """Check against counting one by one; written and read back under the keys from and to."""
    sizes = [rng.choice((0, 1, int(2 ** rng.uniform(0, 40)))) for _ in range(rng.randrange(1, 500))]
    rows = distribution(sizes)
    for row in rows:
        inside = [size for size in sizes if row.start <= size < row.end]
        assert (row.calls, row.bytes) == (len(inside), sum(inside))
    assert rows[0].calls and rows[-1].calls and sum(row.calls for row in rows) == len(sizes)
    assert [row.end for row in rows[:-1]] == [row.start for row in rows[1:]]
    assert set(to_json(rows[0])) == {"from", "to", "calls", "bytes"}
    written = json.loads(text_of({"sizes": rows}))["sizes"]
    assert [from_json(SizeShare, row) for row in written] == rows
    assert distribution([]) == []


@pytest.mark.parametrize("plain", [True, False])
def test_bars(plain: bool, rng: random.Random) -> None:
    """Check that the longest bar has the most calls, that bars follow the order of numbers, and that no count is
    invisible."""
    rows = distribution([int(2 ** rng.gauss(12, 3)) for _ in range(1000)])
    text = shown_distribution.render(rows, Style(ascii=plain, exact=True))
    assert text.isascii() == plain
    bars = [shown_distribution.bar(row.calls, max(one.calls for one in rows), Style(ascii=plain)) for row in rows]
    assert max(map(len, bars)) == shown_distribution.BAR
    assert all(bool(bar) == bool(row.calls) and bar in text for bar, row in zip(bars, rows))
    for one, bar in zip(rows, bars):
        assert all(len(bar) <= len(other) for more, other in zip(rows, bars) if more.calls > one.calls)


def native(name: str, evaluates: bool = False, interpreters: bool = False) -> NativeFrame:
    """Return a frame of C code."""
    return NativeFrame(StackFrame(name, "lib.so", None, "native"), evaluates, interpreters or evaluates)


def test_merged_order(rng: random.Random) -> None:
    """Check that a known stack, divided into both kinds, is merged as it was, without the interpreter's own frames
    outside of the last Python function; a cut or torn one gives its inner part."""
    for _ in range(500):
        natives, groups, expected = [], [], []
        calls = rng.randrange(1, 6)
        for call in range(calls):
            outside = [
                native(f"c{call}.{number}", interpreters=rng.random() < 0.5) for number in range(rng.randrange(4))
            ]
            group = [StackFrame(f"p{call}.{number}", "a.py", 1, "python") for number in range(rng.randrange(1, 4))]
            natives += [*outside, native("evaluator", evaluates=True)]
            groups.append(group)
            expected += [one.frame for one in outside if not one.interpreters] + group
        inside = [native(f"inside{number}", interpreters=rng.random() < 0.5) for number in range(rng.randrange(4))]
        natives += inside
        expected += [one.frame for one in inside]
        inward, inner_groups = natives[::-1], [group[::-1] for group in groups[::-1]]
        assert merge(inward, inner_groups, False, False) == expected[::-1]
        kept = rng.randrange(len(natives))
        part = merge(inward[:kept], inner_groups, True, False)
        names = [one.name for one in expected[::-1]]
        assert [one.name for one in part if one.kind == "python"] == [name for name in names if name.startswith("p")]
        assert [names.index(one.name) for one in part] == sorted(names.index(one.name) for one in part)
        few = rng.randrange(1, calls + 1)
        torn = merge(inward, inner_groups[:few], False, True)
        shown = [one for one in torn if one.name in names]
        assert [names.index(one.name) for one in shown] == sorted(names.index(one.name) for one in shown)
        assert sum(one.name == "evaluator" for one in torn) == calls - few


def test_numbers_that_do_not_fit() -> None:
    """Check frames that cannot be assigned to each other: Python's frames are outside, and the callees of the
    innermost evaluator inside."""
    group = [StackFrame("p", "a.py", 1, "python")]
    natives = [
        native("malloc"),
        native("evaluator", evaluates=True),
        native("qsort"),
        native("evaluator", evaluates=True),
    ]
    assert [one.name for one in merge(natives, [group], False, False)] == ["malloc", "p"]
    assert [one.name for one in merge(natives, [], False, False)] == ["malloc", "evaluator", "qsort", "evaluator"]
    assert [one.name for one in merge(natives, [[], group], False, False)] == ["malloc", "qsort", "p"]
