"""``gdbheap report``: the page agrees with the commands, has no contents and no markup of the target's, and causes
no error in an installed browser."""

from __future__ import annotations

import html
import json
import os
import random
import re
import resource
import shutil
import string
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.pages import Page, reported, same_rows
from support.programs import ask, c_program, gdbheap, interpreters, plain_environment, python_program, running
from support.recorded import finished, recorded
from support.recordings import finish, recording

from gdbheap.answers.heap_map import Cell, CellPart, HeapMap, MapGroup
from gdbheap.answers.shared_out import HolderPart
from gdbheap.findings.holder.rule import MainHolder
from gdbheap.first_page.ledger import Ledger, Line, Rss
from gdbheap.first_page.summary import Summary
from gdbheap.report.formats.holder_tree import holder_tree
from gdbheap.report.page.heap_map import DATA, map_section
from gdbheap.report.page.skeleton import LARGEST, fitted
from gdbheap.report.page.target import target_page
from gdbheap.report.text.style import Style
from gdbheap.snapshots.file import read
from gdbheap.snapshots.overview import Outcome, Overview, overview_of_snapshot
from gdbheap.snapshots.type_places import TypePlaces, TypeShare

pytestmark = pytest.mark.skipif(not interpreters(), reason="no CPython")

ROOT = Path(__file__).resolve().parent.parent
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
POLICY = re.compile(r"default-src 'none'; script-src 'sha256-[\w+/=]+'; style-src 'sha256-[\w+/=]+'; base-uri 'none'; ")
TARGETS = ("core", "process", "snapshot", "difference", "calls", "processes", "c", "series")
SECTIONS = [
    "findings", "holders", "ledger", "composition", "map", "holes", "types", "retained", "owners", "threads", "tasks",
    "arenas", "facts",
]  # fmt: skip


class Made:
    """The pages of this run, by kind of target, and their target: a process, and a core of it."""

    def __init__(self, core: str, pid: int, token: str, paths: dict[str, Path]) -> None:
        self.core = core
        self.pid = pid
        self.token = token
        self.paths = paths
        self.texts = {name: path.read_text(encoding="utf-8") for name, path in paths.items()}
        self.pages = {name: Page(text) for name, text in self.texts.items()}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Made]:
    """Yield a page of each kind."""
    folder = tmp_path_factory.mktemp("pages")
    token = "".join(random.choices(string.ascii_letters, k=24))
    kind = interpreters()[0].kind
    paths = {name: folder / f"{name}.html" for name in TARGETS}
    with running(python_program(kind, "markup", token), folder) as program, running(c_program("idle"), folder) as other:
        core = str(program.gcore())
        looks = [str(folder / f"{number}.heap") for number in range(3)]
        for look in looks:
            assert gdbheap("snapshot", str(program.pid), look, "--blocks").returncode == 0
        assert reported(paths["core"], core)["about"] == "target"
        assert reported(paths["process"], str(program.pid), "--clone")["about"] == "target"
        assert reported(paths["snapshot"], looks[0])["about"] == "snapshot"
        assert reported(paths["difference"], *looks)["about"] == "difference"
        assert reported(paths["processes"], str(program.pid), str(other.pid))["about"] == "processes"
        assert reported(paths["c"], str(other.pid))["about"] == "target"
        with recording(folder, str(program.pid)) as recorder:
            recorder.wait(lambda found: len(found) > 2)
            assert finish(recorder)[0] == 0
        assert reported(paths["series"], str(recorder.path))["about"] == "series"
        log = folder / "calls.log"
        with recorded(python_program(kind, "markup", token), log) as traced:
            finished(traced, log)
        assert reported(paths["calls"], str(log))["about"] == "calls"
        yield Made(core, program.pid, token, paths)


def test_a_page_is_well_formed(made: Made) -> None:
    """Check that every element is closed, that ids are unique, that links have a target, and that nothing is loaded."""
    for name, page in made.pages.items():
        if name == "series":
            continue
        ids = [found["id"] for _tag, found in page.tags if "id" in found]
        assert len(ids) == len(set(ids)), name
        assert page.sections and all(link[0] == "#" and link[1:] in ids for link in page.links), name
        (policy,) = [found["content"] for _tag, found in page.tags if "http-equiv" in found]
        assert POLICY.match(str(policy)), name
        assert made.paths[name].stat().st_size <= LARGEST
        assert not [found for _tag, found in page.tags if any(key.startswith("on") or key == "style" for key in found)]
    assert [name for name in made.pages["core"].sections if name != "damage"] == SECTIONS
    assert made.pages["c"].sections == SECTIONS and made.texts["c"].count('class="why"') == 2


def test_a_page_of_series_is_well_formed(made: Made) -> None:
    """Check that the page has neither a script nor sections, that its picture has its own styles, and that nothing
    is loaded."""
    page = made.pages["series"]
    ids = [found["id"] for _tag, found in page.tags if "id" in found]
    assert len(ids) == len(set(ids)) and not page.sections and not page.scripts
    assert all(link[0] == "#" and link[1:] in ids for link in page.links)
    (policy,) = [found["content"] for _tag, found in page.tags if "http-equiv" in found]
    assert str(policy).startswith("default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; ")
    assert made.paths["series"].stat().st_size <= LARGEST
    assert not [found for _tag, found in page.tags if any(key.startswith("on") for key in found)]


def test_no_name_becomes_markup(made: Made) -> None:
    """Check that names of the target are text: the page has only gdbheap's tags, and one script that runs."""
    for name, page in made.pages.items():
        tags = {tag for tag, _found in page.tags}
        assert not tags & {"img", "b", "iframe", "object", "embed", "form", "a:", "base"}, name
        scripts = [found for tag, found in page.tags if tag == "script"]
        assert (name == "series" and not scripts) or [found for found in scripts if "type" not in found] == [{}], name
        assert not any("bad()" in script for script in page.scripts if not script.startswith("{")), name
        assert not any(character in made.texts[name] for character in "\x1b\u202e\u2066")
    assert made.texts["core"].count("&lt;/script&gt;&lt;script&gt;bad()") > 3
    assert "\\u003c/script>\\u003cscript>bad()" in made.texts["core"]
    for name in ("core", "snapshot", "difference"):
        assert any("</script><script>bad()" in row["type"] for row in made.pages[name].tables["types-table"].rows)


def test_no_contents(made: Made, tmp_path: Path) -> None:
    """Check that the token, which is in strings, bytes and keys, is in the page only if contents were requested."""
    halves = (made.token, made.token[:12], made.token[12:])
    for name, text in made.texts.items():
        assert not any(part in text for part in halves), name
    path = tmp_path / "open.html"
    reported(path, made.core, "--with-contents")
    assert made.token in path.read_text(encoding="utf-8")
    done = gdbheap("report", made.core, "-o", str(path), "--with-contents", "--no-text")
    assert done.returncode == 2 and "exclude each other" in done.stderr


def with_own(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row of ``pyobjects`` with the page's keys: the objects' own bytes, and the bytes with their buffers."""
    return {**row, "bytes": row["own"], "together": row["bytes"]}


def test_figures_are_those_of_the_commands(made: Made) -> None:
    """Check that every figure for a core is that of the command's JSON."""
    page, core = made.pages["core"], made.core
    ledger = ask("", core, "--detail", "--no-text")
    plain = ask("", core, "--no-text")
    assert page.figures["rss.bytes"] == ledger["rss"]["bytes"]
    for key in ("used_resident", "free_resident", "whole", "returnable"):
        assert page.figures.get(f"summary.{key}") == ledger["summary"][key]
    assert plain["verdict"] in html.unescape(made.texts["core"])
    same_rows(page.tables["holders-table"], plain["holders"], ["path", "bytes"])
    assert page.findings == [(row["id"], row["bytes"]) for row in plain["findings"]]
    lines = {row["id"]: row for row in ledger["ledger"]}
    assert {row["id"] for row in page.tables["ledger-lines"].rows} == set(lines)
    for row in page.tables["ledger-lines"].rows:
        for key in ("resident", "whole", "swapped", "virtual"):
            assert row[key] == lines[row["id"]][key], row
    assert set(page.lines) == set(lines)
    for name, size in page.lines.items():
        assert size == (lines[name]["virtual"] if lines[name]["resident"] is None else lines[name]["resident"])
    found = ask("holes", core, "--min=64K", "--no-text")
    same_rows(page.tables["holes-table"], found["rows"], ["address", "size", "resident", "allocator"])
    total = page.tables["holes-table"].total
    assert total is not None and [total["size"], total["resident"]] == [
        found["total"]["bytes"],
        found["total"]["resident"],
    ]
    found = ask("pyobjects", core, "--no-text")
    keys = ["type", "count", "bytes", "buffers", "together"]
    same_rows(page.tables["types-table"], [with_own(row) for row in found["rows"]], keys)
    total = page.tables["types-table"].total
    assert total is not None and [total[key] for key in keys[1:]] == [with_own(found["total"])[key] for key in keys[1:]]
    by_type = ask("retained", core, "--by=type", "--no-text", "--top=all")["rows"]
    retained = {row["type"]: row["retained"] for row in by_type}
    for row, known in zip(page.tables["types-table"].rows, found["rows"]):
        assert row["retained"] == retained[known["type"]]
    found = ask("retained", core, "--top=200", "--no-text")
    keys = ["type", "address", "count", "bytes", "retained"]
    same_rows(page.tables["retained-table"], [{**row, "bytes": row["own"]} for row in found["rows"]], keys)
    found = ask("owners", core, "--top=200", "--no-text")
    same_rows(page.tables["owners-table"], found["rows"], ["path", "bytes", "blocks"])
    found = ask("arenas", core, "--no-text")
    keys = ["address", "system", "in_use", "free", "fast", "tcache", "top", "used_count", "free_count"]
    same_rows(page.tables["arenas-table"], found["rows"], keys)
    same_rows(page.tables["facts-table"], ask("info", core, "--no-text")["rows"], ["fact", "value", "source"])
    found = ask("pins", core, "--no-text", "--top=all")
    same_rows(page.tables["pins-table"], found["rows"], ["address", "would_free", "blocks", "size", "allocator"])


def test_parts_add_up(made: Made) -> None:
    """Check that the flame graph is as wide as the resident bytes, and so are the ledger's roots, and that a map has
    all its cells."""
    for name in ("core", "process", "c"):
        page = made.pages[name]
        whole = sum(size for line, size in page.lines.items() if "." not in line)
        assert whole and page.figures["rss.bytes"] in (None, whole), name
        total = page.tables["composition-cells"].total
        assert total is not None and total["bytes"] == whole, name
        (data,) = (json.loads(script) for script in page.scripts if script.startswith("{"))
        for start, end, kinds, types in data["groups"]:
            counts = [sum(int((run + "*1").split("*")[1]) for run in runs.split()) for runs in (kinds, types)]
            assert counts[0] == counts[1] == -(-(end - start) // data["cell"]), name


def test_a_process_at_rest(made: Made) -> None:
    """Check that the lines of the page's ledger for a waiting process are the command's, except for files, whose
    pages the kernel may drop."""
    page, lines = made.pages["process"], ask("", str(made.pid), "--detail", "--no-text")["ledger"]
    known = {row["id"]: [row["resident"], row["virtual"]] for row in lines if row["id"].partition(".")[0] != "file"}
    shown = {row["id"]: [row["resident"], row["virtual"]] for row in page.tables["ledger-lines"].rows}
    assert known and {name: shown[name] for name in known} == known


def test_all_types_are_in_the_flame_graph(made: Made) -> None:
    """Check that blocks in use are divided by type: made-up types have the bytes that pyobjects counts."""
    known = {row["type"]: row["own"] for row in ask("pyobjects", made.core, "--no-text")["rows"]}
    found: dict[str, int] = {}
    for row in made.pages["core"].tables["composition-cells"].rows:
        name = row["stack"].rpartition(" > ")[2]
        found[name] = found.get(name, 0) + row["bytes"]
    named = [name for name in known if "__main__.Node" == name or name == "dict"]
    assert named
    for name in named:
        assert 0 < found.get(name, 0) <= known[name]


def test_a_snapshot_has_what_its_options_kept(made: Made, tmp_path: Path) -> None:
    """Check that blocks that were not counted are not shown as 0, and that a missing part names the option that
    keeps it, if there is one."""
    rows = made.pages["snapshot"].tables["composition-cells"].rows
    blocks = {row["stack"].rpartition(" > ")[2]: row["blocks"] for row in rows}
    assert blocks["large blocks (mmap)"] is None and 0 not in blocks.values()
    assert " 0 blocks" not in made.texts["snapshot"]
    look, path = tmp_path / "look.heap", tmp_path / "look.html"
    assert gdbheap("snapshot", made.core, str(look), "--owners", "--blocks").returncode == 0
    reported(path, str(look))
    text = path.read_text(encoding="utf-8")
    assert "retained-table" in Page(text).tables and "a snapshot never contains all owners" in text
    without = overview_of_snapshot(replace(read(str(look)).snapshot, owners=None))
    assert without.kept.answer is None and "'heap snapshot --owners' keeps it" in without.kept.why


def test_sentences_of_pages(made: Made) -> None:
    """Check that a page begins with a capital letter, and that a process without a finding has none with an unknown
    amount."""
    (lead,) = re.findall(r'<p class="lead">(.)', made.texts["difference"])
    assert lead.isupper() or lead.isdigit()
    rows = made.pages["processes"].tables["processes-table"].rows
    assert rows and all(row["finding_bytes"] is not None for row in rows)


def random_overview(rng: random.Random, count: int, stretches: int = 1) -> Overview:
    """Return a made-up heap of ``count`` cells, in equal stretches. Neighbours differ, and type names are long."""
    states, cells = ("used", "free", "top", None), []
    for number in range(count):
        state = rng.choice(states)
        resident = rng.choice((0, 4096))
        cells.append(Cell(number << 12, (number + 1) << 12, [CellPart("x", 4096, 4096, resident, state)]))
    some = rng.sample(range(count), count // 9)
    shares = [TypeShare(number, f"{rng.random()}<{'y' * 200}>", 1, 8, 8) for number in some]
    length = count // stretches
    parts = [cells[at : at + length] for at in range(0, count, length)]
    groups = [MapGroup("<made up>", "x", None, part[0].start, part[-1].end, None, part) for part in parts]
    nothing: Outcome[Any] = Outcome(None, "made up")
    ledger = Ledger(Rss(None, None, "nobody"), [], [])
    drawn, places = (
        Outcome(HeapMap(4096, groups, [])),
        Outcome(TypePlaces(sorted(shares, key=lambda share: share.place))),
    )
    return Overview(0.0, {}, ledger, drawn, places, *[nothing] * 10)


def test_a_map_has_its_limit(rng: random.Random) -> None:
    """Check that the map of a torn heap has few cells, and its finest ones a limited number of bytes."""
    text = map_section(random_overview(rng, 60_000)).body
    page = Page(text)
    (data,) = page.scripts
    assert len(data) <= DATA and len(text) < 3 * DATA
    ((start, end, kinds, _types),) = json.loads(data)["groups"]
    assert (start, end) == (0, 60_000 << 12) and "<" not in data and kinds
    assert json.loads(data)["cell"] > 4096
    cells = [found for tag, found in page.tags if tag == "rect" and "data-i" in found]
    assert 100 < len(cells) <= 2000


def test_a_map_of_a_process_in_use(rng: random.Random) -> None:
    """Check that the map has one row for each allocator, and none for one with less than a hundredth."""
    found = random_overview(rng, 9000, 90)
    groups = [replace(group, kind=f"kind{number % 3}") for number, group in enumerate(found.map.answer.rows)]
    small = replace(groups[0], kind="tiny", cells=groups[0].cells[:1], end=groups[0].start + 4096)
    used = Summary(20 << 20, 20 << 20, 1 << 20, 1 << 20, None, [], [], None)
    ledger = replace(found.ledger, summary=used)
    drawn = Outcome(HeapMap(4096, [small, *groups], []))
    body = map_section(replace(found, ledger=ledger, map=drawn)).body
    titles = re.findall(r'<text x="0"[^>]*>(.*?): ', body)
    assert sorted(titles) == ["kind0", "kind1", "kind2"] and "tiny: less than 1 %" in body
    tops = set(re.findall(r'<rect class="cell[^>]* y="(\d+)"', body))
    assert len(tops) == 3
    assert "0x" not in "".join(titles) and body.count("<text") == 3


def test_memory_by_holder_adds_up() -> None:
    """Check that all resident memory has a cell: memory of holders, memory without a holder, free memory of each
    allocator, and the rest."""
    lines = [
        Line("glibc", None, "glibc malloc", 900, 900, 0),
        Line("glibc.used", "glibc", "used", 600, 600, 0, state="used"),
        Line("glibc.used.0", "glibc.used", "arena", 600, 600, 0, state="used"),
        Line("glibc.free", "glibc", "free", 200, 200, 0, state="free"),
        Line("glibc.top", "glibc", "top", 60, 60, 0, state="top"),
        Line("glibc.over", "glibc", "headers", 40, 40, 0, state="overhead"), Line("file", None, "files", 70, 70, 0),
        Line("file.text", "file", "code", 70, 70, 0), Line("other", None, "other", 30, 30, 0),
        Line("other.java", "other", "Java", 30, 30, 0),
    ]  # fmt: skip
    held = [MainHolder(400, 350, None, "CACHE", "dict", 3, "variable", 1, [], [HolderPart("str", 3, 300)])]
    held.append(MainHolder(99, 99, None, "Java", None, None, "runtime"))
    tree = holder_tree(Ledger(Rss(1000, 0, ""), lines, []), held)
    sums = {" > ".join(frame.name for frame in frames): size for frames, size, _count in tree}
    assert sums == {
        "in use > CACHE > str": 300, "in use > CACHE": 50, "in use > other blocks in use": 250,
        "free, kept by glibc": 260, "the allocators' own data": 40, "files": 70, "Java": 30,
    }  # fmt: skip


def test_a_map_of_many_stretches(rng: random.Random) -> None:
    """Check that many stretches are drawn together, that the page says what is left out, and that each drawn cell
    has its place in the data."""
    text = map_section(random_overview(rng, 12_000, 3000)).body
    page = Page(text)
    data = json.loads(page.scripts[0])
    assert len(page.scripts[0]) <= DATA and "1,500 smaller areas are not drawn" in text
    cells = [found for tag, found in page.tags if tag == "rect" and "data-i" in found]
    assert {int(str(cell["data-g"])) for cell in cells} == set(range(1500)) and len(data["groups"]) == 1500
    titles = sum(int(str(cell["data-n"])) for cell in cells)
    assert titles == 1500 * 4


@pytest.mark.parametrize("shape", ["circle", "chain", "fan", "dots"])
def test_a_ledger_of_a_file_may_be_anything(shape: str) -> None:
    """Check lines that lead in a circle, or that are thousands deep or thousands below one: a page is made all the
    same."""
    names = [(str(number), str(number - 1) if number else None) for number in range(5000)]
    if shape == "circle":
        names = [("a", None), *[("a", "a")] * 300, ("b", "c"), ("c", "b")]
    elif shape == "fan":
        names = [("a", None), *((f"a.{number}", "a") for number in range(5000))]
    elif shape == "dots":
        names = [("a" + ".b" * 5000, None)]
    lines = [Line(name, parent, "<i>", 4096, 4096, 0) for name, parent in names]
    nothing: Outcome[Any] = Outcome(None, "made up")
    found = Overview(0.0, {}, Ledger(Rss(4096, 0, "nobody"), lines, []), *[nothing] * 12)
    page = Page(target_page(found, Style(rss=4096)).decode("utf-8"))
    assert page.sections == SECTIONS and page.lines and len(page.tables["ledger-lines"].rows) == min(len(lines), 200)


def test_rows_give_way() -> None:
    """Check that a page that is too large is made again with fewer rows, and that the last attempt is accepted at
    any size."""
    assert len(fitted(lambda most: b"x" * most * 6000)) == 100 * 6000 * 1
    assert len(fitted(lambda most: b"x" * most * 50_000, 64)) == 16 * 50_000
    assert len(fitted(lambda _most: b"x" * (LARGEST + 1))) == LARGEST + 1


def test_an_older_file_stays(made: Made, tmp_path: Path) -> None:
    """Check that any failure leaves the file complete or as it was, with one line."""
    path = tmp_path / "page.html"
    path.write_text("older")
    small = {"preexec_fn": lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (8192, 8192))}
    lines = [
        gdbheap("report", made.core, "-o", str(path), **small),
        gdbheap("report", made.core, "-o", str(tmp_path / "absent" / "page.html")),
        gdbheap("report", made.core, "-o", str(tmp_path / "page.txt")),
        gdbheap("report", made.core),
        gdbheap("report", "-o", str(path)),
        gdbheap("report", str(tmp_path / "absent.heap"), "-o", str(path)),
        gdbheap("report", "--children", "--clone", str(os.getpid()), "-o", str(path)),
    ]
    for done in lines:
        assert done.returncode in (2, 4) and done.stderr.count("\n") == 1 and not done.stdout, done.stderr
    assert path.read_text() == "older" and list(tmp_path.iterdir()) == [path]
    link = tmp_path / "full.html"
    link.symlink_to("/dev/full")
    done = gdbheap("report", made.core, "-o", str(link))
    assert done.returncode == 2 and "it is a link" in done.stderr and done.stderr.count("\n") == 1


def test_an_example(tmp_path: Path) -> None:
    """Check that the example has its tables, and no folder names of this machine."""
    path = tmp_path / "example.html"
    script = [sys.executable, str(ROOT / "scripts" / "example_report.py"), str(path)]
    done = subprocess.run(script, capture_output=True, text=True, timeout=120, env=plain_environment())
    assert done.returncode == 0, done.stderr
    text = path.read_text(encoding="utf-8")
    assert {"ledger-lines", "holes-table", "types-table", "owners-table"} <= Page(text).tables.keys()
    assert len(text) < 200 << 10
    assert not re.search(r"/proc/\d+/root|/tmp/|/home/", text)


def browser() -> str:
    """Return a browser, or skip with the reason why there is none."""
    found = next((path for path in map(shutil.which, BROWSERS) if path), None)
    if found is None:
        pytest.skip(f"none of {', '.join(BROWSERS)} is here")
    return found


@pytest.mark.parametrize("name", TARGETS)
def test_a_browser_takes_it(name: str, made: Made, tmp_path: Path) -> None:
    """Check that the browser's console has no message, that the script has run, and that the target's type names
    have not."""
    command = [browser(), "--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", "--dump-dom"]
    command += [f"--user-data-dir={tmp_path}", f"file://{made.paths[name]}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and "</html>" in done.stdout
    assert not [line for line in done.stderr.splitlines() if ":CONSOLE" in line or "Refused to" in line]
    assert bool(re.search(r"<th [^>]*><button type=\"button\">", done.stdout)) == (name != "series")


@pytest.fixture(scope="module")
def tab(made: Made) -> Iterator[Any]:
    """Yield a tab of a browser, controlled by the test."""
    sync = pytest.importorskip("playwright.sync_api", reason="playwright is not installed beside gdbheap")
    with sync.sync_playwright() as driver:
        window = driver.chromium.launch(executable_path=browser(), args=["--no-sandbox"])
        yield window.new_page()
        window.close()


def test_tables_sort_and_search(made: Made, tab: Any) -> None:
    """Check sorting by the exact values, largest first, then reversed, and of words alphabetically; and the search."""
    complaints: list[str] = []
    tab.on("console", lambda message: complaints.append(message.text))
    tab.goto(f"file://{made.paths['core']}")
    rows = made.pages["core"].tables["types-table"].rows

    def column(place: int) -> list[str]:
        cells = tab.locator(f"#types-table tbody tr:visible td:nth-child({place})")
        values = "cells => cells.map(cell => cell.dataset.v ?? cell.textContent)"
        return [str(text) for text in cells.evaluate_all(values)]

    tab.click("#types-table th[data-k=count] button")
    assert [int(text) for text in column(2)] == sorted((row["count"] for row in rows), reverse=True)
    tab.click("#types-table th[data-k=count] button")
    assert [int(text) for text in column(2)] == sorted(row["count"] for row in rows)
    assert tab.get_attribute("#types-table th[data-k=count]", "aria-sort") == "ascending"
    tab.locator("section#types input[type=search]").first.fill("<SCRIPT>")
    assert column(1) == [row["type"] for row in rows if "<script>" in row["type"]] and column(1)
    assert not complaints


def test_keys_are_enough(made: Made, tab: Any) -> None:
    """Check that parts can be unfolded and pictures read and zoomed without a pointer."""
    tab.goto(f"file://{made.paths['core']}")
    summary = tab.locator("details.line > summary").first
    summary.focus()
    tab.keyboard.press("Enter")
    assert tab.locator("details.line").first.get_attribute("open") is not None
    flame = tab.locator("svg.flame").first
    flame.focus()
    for _ in range(3):
        tab.keyboard.press("ArrowDown")
    chosen = flame.locator("svg.chosen")
    said = tab.locator("section#holders output").inner_text()
    assert said and chosen.count() == 1
    width = chosen.get_attribute("width")
    tab.keyboard.press("Enter")
    assert chosen.get_attribute("width") == "100%" != width
    tab.keyboard.press("Escape")
    assert abs(float(str(chosen.get_attribute("width"))[:-1]) - float(str(width)[:-1])) < 0.01
    tab.locator("svg.cells").first.focus()
    tab.keyboard.press("ArrowDown")
    tab.keyboard.press("Enter")
    assert tab.locator("section#map svg.cells").count() == 2
    assert re.match(r"0x[0-9a-f]+ to 0x[0-9a-f]+", tab.locator("section#map output").first.inner_text())
    tab.locator("section#map svg.cells").nth(1).focus()
    tab.keyboard.press("Escape")
    assert tab.locator("section#map svg.cells").count() == 1
    tab.check("#map-by-type")
    assert tab.locator(".legend.of-type").is_visible() and not tab.locator(".legend.of-state").is_visible()


SCREEN, PHONE = 1200, 390


# The pages of a process and of a snapshot have the sections of a core's; each takes axe seconds.
@pytest.mark.parametrize("name", [name for name in TARGETS if name not in ("process", "snapshot")])
def test_everybody_can_read_it(name: str, made: Made, tab: Any) -> None:
    """Check that axe finds nothing, in both schemes, on a screen and on a phone's, where nothing overflows."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe is not installed beside gdbheap")
    widths = (SCREEN, PHONE) if TARGETS.index(name) % 2 else (PHONE, SCREEN)
    for scheme, width in zip(("light", "dark"), widths):
        tab.emulate_media(color_scheme=scheme)
        tab.set_viewport_size({"width": width, "height": 844})
        tab.goto(f"file://{made.paths[name]}")
        found = axe.Axe().run(tab).response["violations"]
        assert not found, [(scheme, width, one["id"], one["nodes"][0]["html"]) for one in found]
        assert tab.evaluate("document.documentElement.scrollWidth <= innerWidth"), (scheme, width)


GROUND = "getComputedStyle(document.body).backgroundColor"
# The parts of the page's details that are folded: none takes room.
FOLDED = """[...document.querySelectorAll("details > :not(summary, .search)")].filter(
    (each) => !each.checkVisibility({contentVisibilityAuto: true})).length"""


@pytest.mark.parametrize("name", TARGETS)
def test_on_paper(name: str, made: Made, tab: Any) -> None:
    """Check that a page is printed dark on white even in the dark scheme, unfolded, without the parts that only work
    on a screen, and with nothing cut off at the side."""
    tab.emulate_media(color_scheme="dark", media="screen")
    tab.set_viewport_size({"width": 794, "height": 1123})
    tab.goto(f"file://{made.paths[name]}")
    dark, folded = tab.evaluate(GROUND), tab.evaluate(FOLDED)
    assert dark != "rgb(255, 255, 255)" and bool(folded) == ("<details" in made.texts[name])
    tab.emulate_media(color_scheme="dark", media="print")
    assert tab.evaluate(GROUND) == "rgb(255, 255, 255)" and tab.evaluate(FOLDED) == 0
    assert all(not each.is_visible() for each in tab.locator("nav, .search, output").all())
    assert tab.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert tab.pdf(format="A4").startswith(b"%PDF")
    tab.emulate_media(color_scheme="light", media="screen")


@pytest.mark.parametrize("name", TARGETS)
def test_without_a_script(name: str, made: Made, tab: Any) -> None:
    """Check that without the script all rows of open tables and the pictures are visible, that nothing is offered
    that needs it, and that unfolding works."""
    context = tab.context.browser.new_context(java_script_enabled=False)
    try:
        plain = context.new_page()
        plain.goto(f"file://{made.paths[name]}")
        for id, table in made.pages[name].tables.items():
            rows = plain.locator(f"#{id} > tbody > tr")
            assert rows.count() == len(table.rows)
            inside = plain.locator(f"details:not([open]) #{id}").count()
            assert rows.first.is_visible() != bool(inside), id
        assert plain.locator("button:visible, input:visible:not([type=radio])").count() == 0
        assert all(each.is_visible() for each in plain.locator("figure > svg").all())
        folded = plain.locator("details:not([open]) > summary:visible").first
        if "<details" in made.texts[name]:
            folded.click()
            assert plain.locator("details[open]").count()
    finally:
        context.close()
