"""polars' frames, checked by ``estimated_size()``, names, dtypes and shapes in the program itself."""

from __future__ import annotations

import json
import random
from pathlib import Path

from support.installed import pythons_with_polars
from support.programs import GCORE, PROCESS, SOURCES, ask, gdbheap, running


def test_frames_of_polars(rng: random.Random, tmp_path: Path) -> None:
    """Check random frames, of several parts and cut, in a process and in its core: every column by name, dtype and
    bytes. Frames with one changed word are rejected."""
    for python in pythons_with_polars():
        check_python(python, rng, tmp_path)


def check_python(python: str, rng: random.Random, folder: Path) -> None:
    """Check one release of polars."""
    command = [python, str(SOURCES / "polars_frames.py"), str(rng.getrandbits(30)), str(folder / "truth")]
    with running(command, folder) as target:
        truth = json.loads((folder / "truth").read_text())
        for form in (PROCESS, GCORE):
            where = target.as_form(form)
            answer = ask("owners", where, "--by=array", "--top=all")
            rows = {row["address"]: row for row in answer["rows"]}
            for address, frame in truth["frames"].items():
                row = rows.get(int(address))
                # A series that views a frame's column has no row.
                assert row is not None or len(frame["columns"]) == 1, (truth["version"], frame)
                if row is not None:
                    assert row["shape"] == frame["shape"]
                    for one, (name, dtype, size) in zip(row["columns"], frame["columns"]):
                        assert (one["dtype"], one["bytes"]) == (dtype, size), (python, truth["version"], name)
                        # A struct's name is elsewhere before 1.0.
                        assert one["name"] == name or (dtype == "Struct" and one["name"] is None)
                    sizes = [size for _name, _dtype, size in frame["columns"]]
                    assert row["bytes"] == (None if None in sizes else sum(sizes))
            assert not rows.keys() & set(truth["false"])
            assert any("3 polars.DataFrame have no row" in warning for warning in answer["warnings"])
        if truth["place"] is not None:
            check_place(str(target.pid), truth["place"] + 8 * rng.randrange(1234))
        text = gdbheap("owners", str(target.pid), "--by=array", "--no-text").stdout
        assert "polars" in text and "numbers" not in text and "<str of 7>" in text


def check_place(target: str, address: int) -> None:
    """Check the series of an address."""
    inside = ask("at", target, hex(address))["array"]
    assert inside is not None and (inside["what"], inside["dtype"], inside["shape"]) == ("Series", "Int64", [1234])
