"""``heap map``: its cells add up to the ledger's lines and to pagemap's entries; the drawing equals the memory."""

from __future__ import annotations

import random
import re
import struct
import xml.etree.ElementTree as ElementTree
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support import kernel
from support.programs import (
    FORMS,
    FREE_THREADED,
    GCORE,
    PROCESS,
    Running,
    ask,
    c_program,
    gdbheap,
    python_program,
    release_program,
    running,
)

from gdbheap.answers.heap_map import Cell, CellPart, HeapMap, MapGroup
from gdbheap.report.text.style import Style
from gdbheap.report.words.heap_map import render

pytestmark = pytest.mark.cases(8)

SVG = "{http://www.w3.org/2000/svg}"
MEANINGS = ("in use", "partly in use", "free but resident", "free, not resident", "top, resident", "top, not resident",
            "overhead or other", "not resident")  # fmt: skip
ASCII = dict(zip("#%o.^_+-", MEANINGS))


def commands(rng: random.Random, directory: Path) -> dict[str, list[str]]:
    """Return programs of every kind of heap."""
    return {
        "threads": c_program("trim", rng.getrandbits(30), 5, 8000, 800, 200_000, 16),
        "scattered": c_program("recorder", 3, rng.getrandbits(30), 20_000, 2000, 300_000, 2, directory / "table"),
        "foreign": c_program("trim", rng.getrandbits(30), 2, 8000, 800, 200_000, 1),
        "python": python_program("stripped", "pools", rng.getrandbits(32), 60_000),
        "holes": python_program("stripped", "fragmented", rng.getrandbits(32), 300),
        "states": c_program("held", rng.getrandbits(30), 400, 200_000, 11),
    }


NAMES = ("threads", "scattered", "foreign", "python", "holes", "states")


def parts(answer: dict[str, Any]) -> dict[str, Counter[str]]:
    """Return the sums over all cells and the rest, by the ledger's ids."""
    sums: dict[str, Counter[str]] = {}
    cells = [cell for group in answer["rows"] for cell in group["cells"]]
    for part in [*(part for cell in cells for part in cell["parts"]), *answer["other_lines"]]:
        row = sums.setdefault(part["id"], Counter())
        row.update({key: part[key] or 0 for key in ("virtual", "pages", "resident")})
    return sums


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", NAMES)
def test_cells_add_up_to_the_ledger(name: str, form: str, rng: random.Random, tmp_path: Path) -> None:
    """Check that each line of the ledger is the sum of its parts over the cells and the rest."""
    with running(commands(rng, tmp_path)[name], tmp_path) as running_target:
        target = running_target.as_form(form)
        ledger, drawn = ask("", target)["ledger"], ask("map", target)
        small = ask("map", target, f"--cell={rng.choice((4096, 12_288, 65_536))}")
    lines = {line["id"]: line for line in ledger}
    for answer in (drawn, small):
        sums = parts(answer)
        assert set(sums) <= set(lines)
        for name_of, line in lines.items():
            if name_of in sums or not any(one.startswith(name_of + ".") for one in sums):
                values = (sums.get(name_of, Counter())[key] for key in ("virtual", "pages", "resident"))
                assert tuple(values) == (line["virtual"], line["pages"], line["resident"] or 0), name_of


@pytest.mark.parametrize("name", NAMES)
def test_cells_are_the_kernels_pages(name: str, rng: random.Random, tmp_path: Path) -> None:
    """Check that cells follow each other without a gap, and that each has as many resident pages as pagemap has."""
    with running(commands(rng, tmp_path)[name], tmp_path) as target:
        answer = ask("map", str(target.pid))
        for group in answer["rows"]:
            cells = group["cells"]
            assert [cell["start"] for cell in cells] == list(range(group["start"], group["end"], answer["cell"]))
            assert [cell["end"] for cell in cells[:-1]] == [cell["start"] for cell in cells[1:]]
            assert cells[-1]["end"] == group["end"]
            pages = kernel.pages(target.pid, group["start"], group["end"])
            there = [page.is_there for page in pages]
            for cell in cells:
                first, last = ((cell[key] - group["start"]) // kernel.PAGE for key in ("start", "end"))
                assert sum(part["resident"] for part in cell["parts"]) == kernel.PAGE * sum(there[first:last]), cell
            assert group["resident"] == kernel.PAGE * sum(there)


def test_used_bytes_are_the_programs_own(rng: random.Random, tmp_path: Path) -> None:
    """Check the used bytes of each cell by the program's table of its blocks."""
    table = tmp_path / "table"
    command = c_program("holes", rng.getrandbits(30), 60, 300_000, 0, 0, table)
    with running(command, tmp_path) as target:
        answer = ask("map", str(target.pid), "--cell=64K")
    rows = [(pointer - 16, pointer - 8 + usable, held) for pointer, usable, held in records(table)]
    first, last = min(row[0] for row in rows), max(row[1] for row in rows)
    group = next(group for group in answer["rows"] if group["start"] <= first < group["end"])
    inside = [cell for cell in group["cells"] if first <= cell["start"] and cell["end"] <= last]
    assert len(inside) > 20
    for cell in inside:
        used = sum(part["virtual"] for part in cell["parts"] if part["id"] == "glibc.used")
        held = sum(max(0, min(end, cell["end"]) - max(start, cell["start"])) for start, end, kept in rows if kept)
        assert used == held, cell


@pytest.mark.parametrize("form", [PROCESS, GCORE])
@pytest.mark.parametrize("release", ["3.13", *FREE_THREADED])
def test_mimalloc_is_drawn(release: str, form: str, rng: random.Random, tmp_path: Path) -> None:
    """Check CPython's mimalloc: its segments are groups, whose cells have all of its lines except those reserved
    beside them, and used parts are drawn as used."""
    program = release_program(release, "blocks", rng.getrandbits(30), 60_000, 0, tmp_path / "told")
    with running(program, tmp_path, {} if release in FREE_THREADED else {"PYTHONMALLOC": "mimalloc"}) as running_target:
        target = running_target.as_form(form)
        ledger, answer = ask("", target, "--detail")["ledger"], ask("map", target)
        text = gdbheap("map", target).stdout
        why = gdbheap("why", target, hex(answer["rows"][0]["start"]))
    lines = {line["id"]: line for line in ledger}
    own = [group for group in answer["rows"] if group["kind"] == "mimalloc"]
    assert own and all(group["start"] % (32 << 20) == 0 for group in own)
    drawn = parts({"rows": own, "other_lines": []})
    for name in ("used", "overhead"):
        assert drawn[f"mimalloc.{name}"]["virtual"] == lines[f"mimalloc.{name}"]["virtual"]
    free = lines["mimalloc.free"]["virtual"] - lines.get("mimalloc.free.reserve", {"virtual": 0})["virtual"]
    assert drawn["mimalloc.free"]["virtual"] == free
    assert {part["id"] for part in answer["other_lines"]} & set(drawn) <= {"mimalloc.free"}
    title = text.index("mimalloc's segments: ")
    assert re.search("[█▓]", text[title:].split("\n\n")[0])
    assert why.returncode == 2 and "is not in a block in use" in why.stderr


def records(table: Path) -> list[tuple[int, int, int]]:
    """Return {pointer, usable, held} of holes.c."""
    return list(struct.iter_unpack("<3Q", table.read_bytes()))


def look(cell: dict[str, Any]) -> str:
    """Return how a cell of malloc's must be drawn, by its parts: the rule of docs/commands.md, implemented again."""
    sums: Counter[str] = Counter()
    for part in cell["parts"]:
        kind = part["id"].partition(".")[2] if part["id"].startswith("glibc") else "other"
        gone = part["virtual"] - part["resident"]
        if kind == "used":
            sums["in use"] += part["virtual"]
        elif kind in ("free", "top"):
            there, absent = {"free": MEANINGS[2:4], "top": MEANINGS[4:6]}[kind]
            sums.update({there: part["virtual"] - gone, absent: gone})
        else:
            sums.update({MEANINGS[6]: part["resident"], MEANINGS[7]: part["virtual"] - part["resident"]})
    share = sums.pop("in use", 0) / (cell["end"] - cell["start"])
    return "in use" if share >= 0.75 else "partly in use" if share >= 0.25 else max(sums, key=lambda one: sums[one])


def plain(target: Running) -> str:
    """Return the map as text."""
    done = gdbheap("map", str(target.pid))
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_characters(rng: random.Random, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check one character for each cell, in ASCII if nothing else is possible; no colour without a terminal; a
    legend names them."""
    with running(commands(rng, tmp_path)["threads"], tmp_path) as target:
        answer = ask("map", str(target.pid))
        blocks = plain(target)
        monkeypatch.setenv("PYTHONIOENCODING", "ascii")
        text = plain(target)
    assert "\033" not in blocks and "█" in blocks and text.isascii()
    drawn = {int(row[1], 16): row[2] for row in re.finditer(r"^(0x[0-9a-f]+) (\S+)$", text, re.MULTILINE)}
    legend = text.splitlines()[-1]
    expected: Counter[str] = Counter()
    for group in answer["rows"]:
        if group["kind"] == "glibc":
            characters = "".join(drawn[cell["start"]] for cell in group["cells"] if cell["start"] in drawn)
            assert [ASCII[one] for one in characters] == [look(cell) for cell in group["cells"]]
            expected.update(characters)
    assert len(expected) >= 4 and all(f"{one} {ASCII[one]}" in legend for one in expected)


def made_map(rng: random.Random) -> HeapMap:
    """Return a map of one group with cells of every kind."""
    states = {"glibc.used": "used", "glibc.free": "free", "glibc.top": "top", "other": None}
    ids = rng.choices(list(states), k=300)
    parts_of = [[CellPart(name, 4096, 4096, rng.choice([0, 4096]), states[name])] for name in ids]
    cells = [Cell(4096 * at, 4096 * (at + 1), found) for at, found in enumerate(parts_of)]
    return HeapMap(4096, [MapGroup("main arena", "glibc", 0, 0, 300 * 4096, None, cells)], [])


def test_colours_and_width(rng: random.Random) -> None:
    """Check that the lines fit on a terminal, and that colour only adds escapes around the same characters."""
    answer, width = made_map(rng), rng.randrange(40, 200)
    without = render(answer, Style(width=width), 0)
    coloured = render(answer, Style(width=width, bold=True), 0)
    assert "\033" not in without and "\033[32m" in coloured
    assert re.sub(r"\033\[[0-9]*m", "", coloured) == without
    assert max(map(len, without.splitlines()[1:-2])) == width


def test_the_sums_and_the_longest_free_run(rng: random.Random) -> None:
    """Check the first line: the resident bytes of each kind, and the adjacent cells that have the most free bytes."""
    answer = made_map(rng)
    sums: Counter[str] = Counter()
    runs: Counter[int] = Counter()
    start = None
    for cell in answer.rows[0].cells:
        (part,) = cell.parts
        sums[part.state or "other"] += part.resident or 0
        is_free = part.state in ("free", "top")
        start = (cell.start if start is None else start) if is_free else None
        if start is not None:
            runs[start] += part.virtual
    told = [f"{sums['used']:,} bytes in use", f"{sums['free'] + sums['top']:,} bytes free"]
    told += [f"{sums['other']:,} bytes other memory"] if sums["other"] else []
    first = render(answer, Style(exact=True), 0).splitlines()[0]
    size = f"The map shows {300 * 4096:,} bytes: "
    assert first.startswith(size + " and ".join(filter(None, [", ".join(told[:-1]), told[-1]])) + ". "), first
    most = max(runs.values())
    begins = [place for place, free in runs.items() if free == most]
    assert first.endswith(f"{most:,} bytes free.") and any(f"begins at {place:#x} (" in first for place in begins)
    whole = replace(answer, rows=[replace(answer.rows[0], resident=sum(sums.values()))])
    assert f" bytes, {sum(sums.values()):,} bytes of it resident: " in render(whole, Style(exact=True), 0)
    used = replace(answer.rows[0], cells=[Cell(0, 4096, [CellPart("glibc.used", 4096, 4096, 4096, "used")])])
    assert "longest run" not in render(replace(answer, rows=[used]), Style(), 0)


@pytest.mark.parametrize("form", [PROCESS, GCORE])
@pytest.mark.parametrize("name", ["threads", "python"])
def test_svg(name: str, form: str, rng: random.Random, tmp_path: Path) -> None:
    """Check valid XML: a title and a legend, every bar inside the picture, bars of a row filled from edge to edge."""
    path = tmp_path / "a <picture> & more.svg"
    with running(commands(rng, tmp_path)[name], tmp_path) as running_target:
        target = running_target.as_form(form)
        done = gdbheap("map", target, f"--svg={path}")
        answer = ask("map", target, f"--svg={path}.json.svg")
    assert done.returncode == 0 and str(path) in done.stdout
    root = ElementTree.parse(path).getroot()
    assert root.tag == f"{SVG}svg"
    width, height = (int(root.attrib[key]) for key in ("width", "height"))
    shapes = [{key: rect.attrib[key] for key in rect.attrib} for rect in root.iter(f"{SVG}rect")][1:]
    for shape in shapes:
        x, y, wide, high = (int(shape[key]) for key in ("x", "y", "width", "height"))
        assert wide > 0 and high > 0 and x >= 0 and y >= 0 and x + wide <= width and y + high <= height
    words = "".join(text.text or "" for text in root.iter(f"{SVG}text"))
    assert "Each bar shows" in words and all(group["name"] in words for group in answer["rows"])
    area = sum(int(shape["width"]) * int(shape["height"]) for shape in shapes if int(shape["width"]) % 8 == 0)
    assert area == 8 * 16 * sum(len(group["cells"]) for group in answer["rows"])


def test_usage(rng: random.Random, tmp_path: Path) -> None:
    """Check an invalid size, and a file that cannot be written: one line, status 2."""
    with running(commands(rng, tmp_path)["states"], tmp_path) as target:
        nowhere = gdbheap("map", str(target.pid), f"--svg={tmp_path}/not/there.svg")
        bad = gdbheap("map", str(target.pid), "--cell=x")
    for done in (nowhere, bad):
        assert done.returncode == 2 and done.stdout == "" and len(done.stderr.splitlines()) == 1, done.stderr
