"""``--format``, ``--folded``, ``--svg``, ``--speedscope`` and ``--pprof`` of heap, heap owners and heap retained:
all have the same data, no byte is lost, and other tools read them."""

from __future__ import annotations

import json
import random
import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.programs import KINDS, Running, ask, c_program, gdbheap, python_program, running

from gdbheap.answers.contexts import ContextRow, Contexts
from gdbheap.answers.dominator_tree import DominatedNode, DominatorTree
from gdbheap.commands.surface import options
from gdbheap.report.formats.stack_files import FORMATS
from gdbheap.report.formats.trees import DEEPER, MOST_FRAMES, contexts_tree, retained_tree

FORMS = ("folded", "svg", "speedscope", "pprof")


@pytest.fixture(scope="module", params=["python", "c"])
def target(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Yield a program with Python, and one without."""
    folder = tmp_path_factory.mktemp("trees")
    command = python_program(KINDS[0], "secret_texts", "not-shown", 100)
    if request.param == "c":
        command = c_program("holes", 7, 20, 30_000, 1, 0, folder / "table")
    with running(command, folder) as found:
        yield found


def drawn(noun: str, target: Running, folder: Path, *options: str) -> tuple[dict[str, Any], Counter[str]]:
    """Return the answer and the folded lines; the other files are written next to them."""
    written = [f"--{form}={folder / form}" for form in FORMS]
    answer = ask(noun, str(target.pid), "--no-text", *options, *written)
    lines: Counter[str] = Counter()
    for line in (folder / "folded").read_text().splitlines():
        way, _blank, weight = line.rpartition(" ")
        lines[way] += int(weight)
    return answer, lines


def check_others(folder: Path, lines: Counter[str]) -> None:
    """Check that the files for speedscope and pprof have the same paths with the same sums, and that the picture
    names the largest."""
    document = json.loads((folder / "speedscope").read_text())
    frames = [frame["name"] for frame in document["shared"]["frames"]]
    profile = document["profiles"][0]
    found: Counter[str] = Counter()
    for sample, weight in zip(profile["samples"], profile["weights"]):
        found[";".join(frames[place].replace(";", ":") for place in sample)] += weight
    assert found == lines and profile["endValue"] == lines.total()
    picture = (folder / "svg").read_text()
    assert "<svg" in picture and not re.search(r"\d calls?\b|smaller function|native code", picture), picture[:3000]
    assert not [one for one in document["profiles"] if "calls" in one["name"]]
    go = shutil.which("go") or pytest.skip("no go")
    command = [go, "tool", "pprof", "-raw", str(folder / "pprof")]
    raw = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    samples = raw.split("Samples:")[1].split("Locations")[0]
    assert "inuse_space/bytes" in samples
    assert sum(int(size) for size in re.findall(r"^.*?(\d+): ", samples, re.MULTILINE)) == lines.total()


@pytest.mark.parametrize("options", [[], ["--detail"]])
def test_ledger(options: list[str], target: Running, tmp_path: Path) -> None:
    """Check that the leaves add up to RSS, as the lines do."""
    answer, lines = drawn("", target, tmp_path, *options)
    assert lines.total() == answer["rss"]["bytes"] and all(way.startswith("RSS;") for way in lines)
    names = {line["name"]: line["resident"] for line in answer["ledger"] if line["parent"] is None}
    for name, resident in names.items():
        title = name.replace(";", ":")
        assert sum(size for way, size in lines.items() if way.split(";")[1] == title) == resident, name
    if answer["target"]["python"]:
        listed = {row["type"]: row["own"] for row in ask("pyobjects", str(target.pid), "--top=all")["rows"]}
        for name in ("dict", "str", "tuple"):
            found = sum(size for way, size in lines.items() if way.endswith(f";{name}"))
            # Memory in swap, or in no page yet, is not resident.
            assert 0.9 * listed[name] < found <= listed[name], name
    check_others(tmp_path, lines)


@pytest.mark.parametrize("top", ["all", "2"])
def test_owners(top: str, target: Running, tmp_path: Path) -> None:
    """Check that all held memory is in the tree, even if the list is cut."""
    answer, lines = drawn("owners", target, tmp_path, f"--top={top}")
    assert lines.total() == answer["total"]["bytes"]
    counted = sum(row["used_count"] for row in ask("sizes", str(target.pid))["rows"])
    said = re.search(r"<title>Memory in use, by holder: [^<]*, ([\d,]+) blocks</title>", (tmp_path / "svg").read_text())
    assert said and int(said[1].replace(",", "")) == answer["total"]["blocks"] >= counted
    check_others(tmp_path, lines)


def test_retained(target: Running, tmp_path: Path) -> None:
    """Check that all blocks in use are in the tree, and that the part on the object that retains the most is what it
    retains."""
    answer, lines = drawn("retained", target, tmp_path)
    arenas = ask("arenas", str(target.pid))
    if answer["target"]["python"]:
        assert lines.total() == ask("pyobjects", str(target.pid))["all_used"]["bytes"] and answer["rows"]
    else:
        in_arenas = sum(row["used"] for row in ask("sizes", str(target.pid))["rows"])
        assert lines.total() - in_arenas in range(arenas["mmapped_chunks"]["bytes"] + 1)
    widths = {way: sum(size for other, size in lines.items() if other.startswith(way)) for way in _prefixes(lines)}
    assert all(row["retained"] <= max(widths.values()) for row in answer["rows"])
    check_others(tmp_path, lines)


def _prefixes(lines: Counter[str]) -> set[str]:
    words = [way.split(";") for way in lines]
    return {";".join(way[:length]) for way in words for length in range(2, len(way) + 1)}


@pytest.mark.parametrize("noun", ["", "owners", "retained"])
def test_formats(noun: str, target: Running, tmp_path: Path) -> None:
    """Check that --format prints the tree instead of the answer, or writes it: the same as the option with its name."""
    words = [*noun.split(), str(target.pid), "--no-text"]
    lines: dict[str, Counter[str]] = {}
    for form in FORMS:
        others = [f"--{other}={tmp_path / other}" for other in FORMS if other != form]
        named = ["-o", str(tmp_path / form)] if form == "pprof" else []
        done = gdbheap(*words, f"--format={form}", *named, *others)
        assert done.returncode == 0, done.stderr
        if form != "pprof":
            (tmp_path / form).write_text(done.stdout)
        lines[form] = Counter()
        for line in (tmp_path / "folded").read_text().splitlines():
            way, _blank, weight = line.rpartition(" ")
            lines[form][way] += int(weight)
        if noun or form != "folded":
            check_others(tmp_path, lines[form])
    assert lines["speedscope"].keys() == lines["folded"].keys()


def test_formats_that_do_not_fit(target: Running, tmp_path: Path) -> None:
    """Check that each is reported in one line, before anything is read."""
    for words, reason in (
        (["--format=pprof"], "cannot be printed: add -o FILE"),
        (["--format=folded", "--json"], "add -o FILE"),
        (["-o", f"{tmp_path}/a"], "--format=folded|svg"),
        (["--format=folded", "-o", f"{tmp_path}/a", f"--folded={tmp_path}/b"], "give only one"),
        (["--format=png"], "folded, svg, speedscope, pprof"),
    ):
        for noun in ([], ["owners"], ["retained"]):
            done = gdbheap(*noun, str(target.pid), *words)
            assert (done.returncode, done.stderr.count("\n")) == (2, 1) and reason in done.stderr, (words, done.stderr)
    done = gdbheap("chunks", str(target.pid), "--format=folded")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1) and "--by=stack" in done.stderr
    assert not list(tmp_path.iterdir())


def test_a_new_format_needs_no_option(monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that each name has a function, and that --format and -o are enough for a format without its own option."""
    assert tuple(FORMATS) == options.PICTURES
    monkeypatch.setattr(options, "PICTURES", (*options.PICTURES, "made-up"))
    given = options.Pictured(form="made-up", output="tree", svg="picture")
    assert given.pictures == {"svg": "picture", "made-up": "tree"}
    given.check()


def test_not_written(target: Running, tmp_path: Path) -> None:
    """Check that a file that cannot be written is reported before anything is read."""
    for noun in ([], ["owners"], ["retained"]):
        done = gdbheap(*noun, str(target.pid), f"--folded={tmp_path}/no/folder")
        assert (done.returncode, done.stderr.count("\n")) == (2, 1) and "cannot be written" in done.stderr


@pytest.mark.parametrize("kind", ["contexts", "objects"])
def test_a_long_chain_is_no_picture_of_its_square(kind: str, rng: random.Random) -> None:
    """Check that the stacks of a forged chain have no more frames than a tree may have, and that no byte is lost."""
    sizes = [rng.randrange(1, 1000) for _ in range(rng.randrange(3000, 4000))]
    if kind == "contexts":
        rows = [ContextRow(f"c{at}", None, at, size + 1, 1, size, at) for at, size in enumerate(sizes)]
        tree, whole = contexts_tree(Contexts(rows, len(rows), 0, 0, 0)), sum(sizes) + len(sizes)
    else:
        nodes = [DominatedNode(f"c{at}", at - 1 if at else None, 0, size) for at, size in enumerate(sizes)]
        tree, whole = retained_tree(DominatorTree(nodes, 0)), sum(sizes)
    assert sum(size for _frames, size, _count in tree) == whole
    assert sum(len(frames) for frames, _size, _count in tree) <= MOST_FRAMES
    assert any(DEEPER in frames for frames, _size, _count in tree)
