"""DataFrames, tables and arrays, checked in the program itself by pandas' ``memory_usage()``, pyarrow's and numpy's
``nbytes``, and their shapes and dtypes."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from support.installed import python_with
from support.library import heap_of
from support.programs import GCORE, PROCESS, SOURCES, ask, c_program, gdbheap, interpreter_of, running

from gdbheap.answers.arrays import _CoveredMemory
from gdbheap.answers.at import at

KEYS = ("what", "shape", "bytes")
ARRAY_KEYS = ("shape", "bytes", "dtype", "data_address", "views", "base")
# Names of dtypes that contain an object whose text can only be read by running code.
PARTLY_NAMED = ("period",)


def started(python: str, rng: random.Random, folder: Path) -> Any:
    """Start the program; its own figures are in ``truth``."""
    command = [python, str(SOURCES / "frames.py"), str(rng.getrandbits(30)), str(folder / "truth")]
    return running(command, folder)


def check_frames(rows: dict[str, Any], wanted: list[dict[str, Any]]) -> None:
    """Check the shape, the size and the columns of each, by name, dtype and bytes; deep sizes if they are known."""
    for frame in wanted:
        row = rows[frame["path"]]
        assert [row[key] for key in KEYS] == [frame[key] for key in KEYS], frame["path"]
        assert len(row["columns"]) == len(frame["columns"]), frame["path"]
        for (name, dtype, size, deep), column in zip(frame["columns"], row["columns"]):
            assert column["bytes"] == size, (frame["path"], column, size)
            assert deep is None or column["deep"] == deep, (frame["path"], column, deep)
            if dtype is not None:
                assert column["name"] == name, (frame["path"], column, name)
                assert column["dtype"] == dtype or dtype.startswith(PARTLY_NAMED), (frame["path"], column, dtype)


def check_arrays(rows: dict[str, Any], wanted: list[dict[str, Any]]) -> None:
    """Check arrays, views of the memory of others, and views without a row."""
    for array in wanted:
        row = rows[array["path"]]
        assert [row[key] for key in ARRAY_KEYS] == [array[key] for key in ARRAY_KEYS], array["path"]
    assert not [path for path in rows if path and path.startswith("sys.modules['__main__'].VIEWS")]


def check_places(target: str, places: list[list[Any]]) -> None:
    """Check the column or the array of each address."""
    with heap_of(target) as heap:
        for address, what, name, shape in places:
            found = at(heap, address).array
            assert found is not None, (hex(address), what, name)
            # Tables share columns.
            assert (found.what, found.name) == (what, name)
            assert list(found.shape) == shape or found.of == "Table"


@pytest.mark.parametrize("modules", [("numpy",), ("numpy", "pandas", "pyarrow")], ids=["numpy", "all"])
def test_frames_are_what_they_say(modules: tuple[str, ...], rng: random.Random, tmp_path: Path) -> None:
    """Check all frames and arrays, each once, in a process and in its core."""
    with started(python_with(*modules), rng, tmp_path) as target:
        truth = json.loads((tmp_path / "truth").read_text())
        for form in (PROCESS, GCORE):
            where = target.as_form(form)
            if form == GCORE:
                check_places(where, truth["places"])
                assert (
                    "two words" not in gdbheap("owners", where, "--by=array", "--top=all", "--no-text", "--json").stdout
                )
            answer = ask("owners", where, "--by=array", "--top=all")
            rows = {row["path"]: row for row in answer["rows"]}
            check_frames(rows, truth["frames"])
            check_arrays(rows, truth["arrays"])
            assert answer["count"] == len(answer["rows"])
            own = sum(row["bytes"] - row["repeated"] for row in answer["rows"] if row["bytes"] is not None)
            assert answer["total"]["bytes"] == own


def test_a_frame_is_one_row(rng: random.Random, tmp_path: Path) -> None:
    """Check that a variable that is a frame is one row of the holders, and that the rows still add up."""
    command = [python_with("numpy", "pandas"), str(SOURCES / "one_frame.py"), str(rng.getrandbits(30))]
    with running(command, tmp_path) as target:
        answer = ask("owners", str(target.pid), "--top=all")
        shown = gdbheap("owners", str(target.pid)).stdout
        text = gdbheap("owners", str(target.pid), "--by=array", "--top=1").stdout
        hidden = gdbheap("owners", str(target.pid), "--by=array", "--top=1", "--no-text").stdout
        said = json.loads(target.stderr)
    path = "sys.modules['__main__'].state['orders']"
    (row,) = [row for row in answer["rows"] if row["path"].startswith(path)]
    assert (row["expression"], row["array"]["what"], row["array"]["shape"]) == (path, "DataFrame", said["shape"])
    assert {column["name"]: column["bytes"] for column in row["array"]["columns"]} == said["columns"]
    assert row["bytes"] >= sum(said["columns"].values())
    assert sum(row["bytes"] for row in answer["rows"]) == answer["total"]["bytes"]
    rows, columns = said["shape"]
    assert f"DataFrame ({rows:,} x {columns}) of {path}" in shown and "column price float64" in shown
    assert f"{rows:,} x {columns}" in text and "column price" in text and "not one word" in text
    # Classes that only have these names.
    assert "17 polars.DataFrame" in text and "3 objects that look like arrays or tables could not be read" in text
    assert "column <str of 5>" in hidden and "price" not in hidden and "not one word" not in hidden


def test_labels_are_data(rng: random.Random, tmp_path: Path) -> None:
    """Check that labels are hidden like values, which pivoting turns into labels, even if they look like names in
    code."""
    secret = "".join(rng.choice("bcdfghjklmnpqrstvwxz") for _ in range(8))
    command = [python_with("pandas", "polars", "pyarrow"), str(SOURCES / "labels.py"), secret]
    with running(command, tmp_path) as target:
        lines = [["owners", str(target.pid), "--by=array", "--top=all", *form] for form in ([], ["--json"])]
        open_ones, hidden = ([gdbheap(*line, *more).stdout for line in lines] for more in ([], ["--no-text"]))
    for text in open_ones:
        kinds = [f"{secret}{kind}" for kind in ("0", "1", "_of_series", "_of_struct", "_of_table")]
        assert all(kind in text for kind in kinds), text
    assert json.loads(hidden[1])["count"] == json.loads(open_ones[1])["count"] >= 5
    assert all(secret not in text for text in hidden)
    assert "list<item: struct<<str of 18>: int64>>" in hidden[0]


def test_hostile_arrays(rng: random.Random, tmp_path: Path) -> None:
    """Check that impossible shapes, strides and pointers are rejected, and that the sound ones beside them are
    listed."""
    command = [python_with("numpy"), str(SOURCES / "false_arrays.py"), str(rng.getrandbits(30))]
    with running(command, tmp_path) as target:
        said = json.loads(target.stderr)
        answer = ask("owners", str(target.pid), "--by=array", "--top=all")
        found = {row["address"]: row for row in answer["rows"]}
        assert found.keys() & set(said["false"]) == set()
        assert all(found[address]["bytes"] == size for address, size in said["sound"])
        assert answer["total"]["bytes"] < 1 << 30
        assert any("left out" in warning for warning in answer["warnings"])


def test_covered_against_bytes(rng: random.Random) -> None:
    """Check the sum of ranges against a set of all their bytes."""
    for _ in range(200):
        covered, model = _CoveredMemory(), set[int]()
        for _ in range(rng.randrange(1, 30)):
            start = rng.randrange(200)
            end = start + rng.randrange(1, 40)
            new = set(range(start, end)) - model
            model |= new
            assert covered.add(start, end) == len(new)


def test_who_has_no_arrays(tmp_path: Path) -> None:
    """Check that a program with Python but no arrays is answered, and that one without Python gets an error."""
    code = "import array, os\nkept = [array.array('d', range(n)) for n in range(500)]\nos.read(0, 1)"
    with running([interpreter_of("stripped"), "-I", "-c", code], tmp_path) as target:
        answer = ask("owners", str(target.pid), "--by=array")
        assert (answer["rows"], answer["count"], answer["total"]["bytes"]) == ([], 0, 0)
        assert "No DataFrame" in gdbheap("owners", str(target.pid), "--by=array").stdout
    with running(c_program("idle"), tmp_path) as target:
        done = gdbheap("owners", str(target.pid), "--by=array")
        assert done.returncode in (2, 5) and len(done.stderr.strip().splitlines()) == 1
