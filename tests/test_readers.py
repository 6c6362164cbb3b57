"""Other programs open the files that gdbheap writes for them: flame graphs, speedscope, Chrome's DevTools.

The sum that each program shows equals the answer's. ``npm install --prefix build/node speedscope`` installs speedscope;
playwright, installed next to gdbheap, drives the two programs that are pages.
"""

from __future__ import annotations

import contextlib
import http.server
import json
import re
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from support.programs import ask, gdbheap, python_program, running

from gdbheap.export.heapsnapshot import _Ids

SPEEDSCOPE = Path(__file__).resolve().parent.parent / "build/node/node_modules/speedscope/dist/release"
TREES = ("", "owners", "retained")
FORMS = ("folded", "speedscope")
# The result of DevTools' own modules for a file, as in their panel: the number and bytes of nodes, the rows by class
# (name, objects, bytes, bytes retained), and the bytes that nodes retain, by their ids.
LOADED = """
async ([text, ids]) => {
    const parts = await import('devtools://devtools/bundled/entrypoints/heap_snapshot_worker/heap_snapshot_worker.js');
    const {SecondaryInitManager} = parts.HeapSnapshot;
    const loader = new parts.HeapSnapshotLoader.HeapSnapshotLoader({sendEvent() {}});
    for (let at = 0; at < text.length; at += 1 << 20) loader.write(text.slice(at, at + (1 << 20)));
    loader.close();
    const channel = new MessageChannel();
    new SecondaryInitManager(channel.port2);
    const snapshot = await loader.buildSnapshot(channel.port1);
    const rows = Object.values(snapshot.getAggregatesByClassKey(false, 'all', null));
    const node = id => snapshot.nodeIndexForId(id) / snapshot.nodeFieldCount;
    return {
        nodes: snapshot.nodeCount, bytes: snapshot.totalSize,
        classes: rows.map(row => [row.name, row.count, row.self, row.maxRet]),
        retained: ids.map(id => snapshot.retainedSizes[node(id)]),
    };
}
"""
APP = "devtools://devtools/bundled/js_app.html"
PAGE = APP + "?ws={}&panel=heap-profiler"


class Written:
    """A program, with the files and the bytes of each command that has a tree."""

    def __init__(self, pid: int, folder: Path) -> None:
        self.pid, self.folder = str(pid), folder
        self.answers = {
            noun: ask(noun, self.pid, *(f"--{form}={self.path(noun, form)}" for form in FORMS)) for noun in TREES
        }

    def path(self, noun: str, form: str) -> Path:
        """Return the file of a command's tree."""
        return self.folder / f"{noun or 'heap'}.{form}"

    def bytes(self, noun: str) -> int:
        """Return the bytes of the answer: resident or in use."""
        if not noun:
            return int(self.answers[noun]["rss"]["bytes"])
        return int(ask("pyobjects", self.pid)["all_used"]["bytes"])


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Written]:
    """Yield a Python program and the files of its trees."""
    folder = tmp_path_factory.mktemp("trees")
    with running(python_program("stripped", "secret_texts", "nobody-reads-this", 2000), folder) as target:
        yield Written(target.pid, folder)


def _tool(*names: str) -> str:
    for name in names:
        if path := shutil.which(name):
            return path
    pytest.skip(f"none of {', '.join(names)} on the path")


@pytest.mark.parametrize("noun", TREES)
def test_flame_graph(noun: str, written: Written) -> None:
    """Check that the root frame has all bytes."""
    tool = _tool("inferno-flamegraph", "flamegraph.pl")
    done = subprocess.run([tool, str(written.path(noun, "folded"))], capture_output=True, text=True, check=True)
    found = re.search(r"\(([\d,]+) samples, 100%\)", done.stdout)
    assert found and int(found[1].replace(",", "")) == written.bytes(noun)


@contextlib.contextmanager
def _tab() -> Iterator[Any]:
    """Yield a tab of a browser."""
    sync = pytest.importorskip("playwright.sync_api", reason="playwright is not installed beside gdbheap")
    browser = _tool("chromium", "google-chrome")
    with sync.sync_playwright() as driver:
        window = driver.chromium.launch(executable_path=browser, args=["--no-sandbox"])
        yield window.new_page(viewport={"width": 1300, "height": 800})
        window.close()


@contextlib.contextmanager
def _served(folder: Path) -> Iterator[str]:
    handler: Callable[..., http.server.SimpleHTTPRequestHandler] = partial(_Quiet, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}/"
        server.shutdown()


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Print nothing."""


def test_speedscope(written: Written) -> None:
    """Check that each file opens without an error under its own title, and that it has all bytes."""
    if not SPEEDSCOPE.exists():
        pytest.skip("no build/node: npm install --prefix build/node speedscope makes it")
    with _served(SPEEDSCOPE) as address, _tab() as tab:
        complaints: list[str] = []
        tab.on("pageerror", lambda error: complaints.append(str(error)))
        tab.on("console", lambda said: complaints.append(said.text) if said.type == "error" else None)
        for noun in TREES:
            path = written.path(noun, "speedscope")
            document = json.loads(path.read_text())
            assert document["profiles"][0]["endValue"] == written.bytes(noun)
            tab.goto(address)
            tab.wait_for_selector("input[type=file]", state="attached")
            tab.set_input_files("input[type=file]", str(path))
            tab.wait_for_function("name => document.title.startsWith(name)", arg=document["name"])
        assert complaints == []


def test_devtools_agree(written: Written, tmp_path: Path) -> None:
    """Check with their own modules the number and bytes of nodes, the objects of each type with their bytes, and the
    bytes that an object retains, against heap retained."""
    path = tmp_path / "graph.heapsnapshot"
    assert gdbheap("export", written.pid, "-o", str(path), "--format=heapsnapshot").returncode == 0
    graph = json.loads(path.read_text())
    objects, rows = ask("pyobjects", written.pid), ask("retained", written.pid, "--top=1000")["rows"]
    known = set(graph["nodes"][2 :: len(graph["snapshot"]["meta"]["node_fields"])])
    ours = {number: row["retained"] for row in rows if row["address"] and (number := _number(row["address"], known))}
    with _tab() as tab:
        tab.goto(APP, wait_until="commit")
        loaded = tab.evaluate(LOADED, [path.read_text(), list(ours)])
    assert (loaded["nodes"], loaded["bytes"]) == (graph["snapshot"]["node_count"], objects["all_used"]["bytes"])
    classes = {name: (count, size) for name, count, size, _retained in loaded["classes"]}
    # Strings are one row there.
    types = [row for row in objects["rows"] if row["count"] and row["type"] not in ("str", "bytes")]
    assert all(classes[row["type"]] == (row["count"], row["bytes"]) for row in types) and len(types) > 50
    assert len(ours) > 100 and dict(zip(ours, loaded["retained"])) == ours


def _number(address: int, known: set[int]) -> int | None:
    """Return the number of an object's block, which begins at the address or a few words before it."""
    found = (_Ids().of_address(address - distance) for distance in (0, 16, 32, 48))
    return next((number for number in found if number in known), None)


def test_devtools(written: Written, tmp_path: Path) -> None:
    """Check that the memory panel counts the objects of the file, and the bytes that a type retains."""
    node = _tool("node")
    path = tmp_path / "graph.heapsnapshot"
    done = gdbheap("export", written.pid, "-o", str(path), "--format=heapsnapshot")
    assert done.returncode == 0, done.stderr
    graph = json.loads(path.read_text())
    command = [node, "--inspect=127.0.0.1:0", "-e", "setInterval(() => {}, 1000)"]
    with _tab() as tab, subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            found = re.search(r"ws://(\S+)", process.stderr.readline())
            assert found
            tab.goto(PAGE.format(found[1]), wait_until="commit")
            with tab.expect_file_chooser() as chooser:
                tab.get_by_text("Load profile").first.click()
            chooser.value.set_files(str(path))
            # The panel shows its size once it is loaded.
            tab.get_by_role("treeitem", name=re.compile(r"graph, .*B$")).click()
            total = tab.get_by_text(re.compile(r"[\d,]+ objects \(")).first
            said = re.search(r"([\d,]+) objects", total.inner_text())
            assert said
            counted = int(said[1].replace(",", ""))
            sized = graph["nodes"][3 :: len(graph["snapshot"]["meta"]["node_fields"])]
            assert sum(1 for size in sized if size) <= counted <= len(sized)
            tab.get_by_role("row").filter(has_text=re.compile("dict")).first.wait_for()
        finally:
            process.kill()
