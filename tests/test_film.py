"""``gdbheap replay --frames``: each picture is the map of the heap after its call, and all have one scale."""

from __future__ import annotations

import errno
import json
import os
import random
import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import pytest
from support.programs import build, gdbheap
from support.recorded import finished, recorded, waiting

from gdbheap.errors import UsageError
from gdbheap.report.formats import film as film_module
from gdbheap.report.formats.film import Film, FilmFrame, MapRange
from gdbheap.report.formats.svg import KINDS

SVG = "{http://www.w3.org/2000/svg}"
# Measures of report/formats/svg.py and report/words/heap_map.py: bars in a row, width of a bar, left edge of the first,
# height of a bar, an eighth of that.
ACROSS, WIDTH, LEFT, HEIGHT, EIGHTH = 128, 8, 132, 16, 2
COLOURS = {"used": ("#3a7d44",), "free": ("#d9822b", "#c8d6e5"), "top": ("#2e86ab", "#dfe7ee")}


def _log(folder: Path, *words: str) -> Path:
    log = folder / "calls.log"
    with recorded(list(words), log) as target:
        finished(target, log)
    return log


def _film(log: Path, folder: Path, *options: str) -> dict[str, Any]:
    done = gdbheap("replay", str(log), f"--frames={folder}", "--fill", "--json", *options)
    assert done.returncode == 0, done.stderr
    film: dict[str, Any] = json.loads(done.stdout)["film"]
    return film


class Picture:
    """A frame: its size, the position of each row of addresses, and its bars."""

    def __init__(self, path: Path) -> None:
        self.root = ElementTree.parse(path).getroot()
        self.size = (self.root.get("width"), self.root.get("height"), self.root.get("viewBox"))
        texts = [(int(text.get("y", "0")), text.text or "") for text in self.root.iter(f"{SVG}text")]
        self.rows = {int(words, 16): y - 12 for y, words in texts if words.startswith("0x")}
        self.words = [words for _, words in texts]
        self.bars = [
            (float(bar.attrib["x"]), int(bar.attrib["y"]), float(bar.attrib["width"]), int(bar.attrib["height"]),
             bar.attrib["fill"])
            for bar in self.root.iter(f"{SVG}rect")
            if "x" in bar.attrib
        ]  # fmt: skip

    def heights(self, address: int, cell: int) -> dict[str, int]:
        """Return the height of each colour in the bar at an address."""
        row = max(start for start in self.rows if start <= address)
        x, top = LEFT + (address - row) / cell * WIDTH, self.rows[row]
        assert address < row + ACROSS * cell
        found: dict[str, int] = {}
        for left, y, width, height, fill in self.bars:
            if top <= y < top + HEIGHT and left <= x < left + width:
                found[fill] = found.get(fill, 0) + height
        return found


def test_each_picture_is_the_map_after_its_call(rng: random.Random, tmp_path: Path) -> None:
    """Check each bar at some of the calls against heap map of a replay that waits there."""
    numbers = [2, rng.randrange(1 << 30), 20_000, 900, 60_000, 0]
    log = _log(tmp_path, str(build("recorder")), *map(str, numbers), str(tmp_path / "table"))
    film = _film(log, tmp_path / "film", "--every=4000")
    paths = sorted((tmp_path / "film").glob("frame-*.svg"))
    assert len(paths) == film["pictures"] > 3 and film["every"] == 4000
    pictures = [Picture(path) for path in paths]
    assert len({picture.size for picture in pictures}) == 1
    assert len({tuple(sorted(picture.rows.items())) for picture in pictures}) == 1
    for number in rng.sample(range(film["pictures"] - 1), 2):
        with waiting(log, str(4000 * (number + 1)), "--fill") as (pid, _calls):
            shown = json.loads(gdbheap("map", str(pid), f"--cell={film['cell']}", "--json").stdout)
        compared = 0
        for group in shown["rows"]:
            if group["kind"] == "other":
                continue
            for one in group["cells"]:
                middle = (one["start"] + one["end"]) // 2
                found = pictures[number].heights(middle, film["cell"])
                whole = sum(part["virtual"] for part in one["parts"])
                assert sum(found.values()) == HEIGHT
                for state, colours in COLOURS.items():
                    share = sum(part["virtual"] for part in one["parts"] if part["state"] == state) * HEIGHT / whole
                    height = sum(found.get(colour, 0) for colour in colours)
                    # Two boundaries, each rounded to an eighth.
                    assert abs(height - share) <= 2 * EIGHTH, (hex(middle), state, found, one)
                compared += 1
        assert compared > 50


def test_the_page_plays_them_without_a_network(tmp_path: Path) -> None:
    """Check that the page names each picture in order, and no file outside its folder."""
    log = _log(tmp_path, str(build("runaway")), "30", "1000000", "16384")
    folder = tmp_path / "film"
    film = _film(log, folder)
    page = (folder / "index.html").read_text()
    (listed,) = re.findall(r"const frames = (.*);", page)
    files = [file for file, _ in json.loads(listed)]
    assert files == sorted(path.name for path in folder.glob("*.svg")) and len(files) == film["pictures"]
    assert not re.search(r"https?:|//[a-z]|src=\"[^\"]|href=", page)
    assert {path.name for path in folder.iterdir()} == {*files, "index.html"}


def test_full_disk(rng: random.Random, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that a full disk leaves no part of a film."""
    folder, left = tmp_path / "film", rng.randrange(1, 5)
    cell = tuple([0] * len(KINDS))
    film = Film(str(folder), False, cell=4096)
    film.frames = [FilmFrame(call, 4096, [MapRange("heap", 0, 4096, 0, [cell])]) for call in range(4)]
    film.prepare()

    plain = film_module._put

    def put(path: str, text: str) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        plain(path, text)

    monkeypatch.setattr(film_module, "_put", put)
    with pytest.raises(UsageError, match=f"{folder} cannot be written: No space left on device"):
        film.write("a film", 4)
    assert not folder.exists() or not list(folder.iterdir())
    assert set(tmp_path.iterdir()) <= {folder}


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--frames=FOLDER", "--what-if"], "cannot be combined"),
        (["--frames=FOLDER", "--stop-at=1"], "cannot be combined"),
        (["--every=5"], "--frames=FOLDER"),
        (["--frames=FOLDER", "--every=0"], "--every must be at least"),
        (["--frames=."], "it has files that gdbheap did not make"),
    ],
)
def test_refused(words: list[str], reason: str, tmp_path: Path) -> None:
    """Check one line, status 2, and no folder of pictures."""
    log = _log(tmp_path, str(build("runaway")), "5", "100000", "1000")
    done = gdbheap("replay", str(log), *words, cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1) and reason in done.stderr
    assert not (tmp_path / "FOLDER").exists() or not list((tmp_path / "FOLDER").iterdir())
