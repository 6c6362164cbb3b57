"""``import gdbheap``: its names, each with the same answer as the command of that name."""

from __future__ import annotations

import gc
import json
import os
import random
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.programs import KINDS, PATIENCE, PROCESS, Running, ask, gdbheap, python_program, running, tracer

import gdbheap as library
from gdbheap.errors import GdbheapError
from gdbheap.targets.target import Target

NAMES = [
    "Block", "Change", "Difference", "Finding", "GdbheapError", "Heap", "Holder", "Hole", "NoTarget", "NotPermitted",
    "Object", "Owner", "Referrer", "Retained", "Sample", "Saved", "Table", "TypeRow", "Unsupported", "UsageError",
    "__version__", "diff", "here", "open", "sample", "snapshot", "write_report",
]  # fmt: skip
# The fields of each record, in order: scripts rely on it.
FIELDS = {
    "Block": ["address", "size", "state", "allocator", "arena", "end", "kind", "what"],
    "Change": ["name", "bytes", "before", "after", "count", "state"],
    "Finding": ["id", "bytes", "text", "advice", "commands", "doubtful"],
    "Holder": ["bytes", "resident", "share", "path", "what", "count", "kind", "address"],
    "Hole": ["address", "size", "resident", "arena", "allocator", "before_address", "before_size", "before_what",
             "after_address", "after_size", "after_what"],
    "Object": ["address", "type", "size", "text"],
    "Owner": ["address", "type", "what"],
    "Referrer": ["address", "type", "edge", "certain"],
    "Retained": ["address", "type", "count", "own", "retained", "path"],
    "Sample": ["time", "seconds", "rss", "anonymous", "file", "shared", "swapped", "in_use", "system", "threads",
               "doubtful"],
    "Saved": ["path", "size", "paused", "seconds"],
    "TypeRow": ["type", "count", "own", "buffers", "bytes"],
}  # fmt: skip
OF_HEAP = [
    "block_at", "blocks", "close", "closed", "findings", "free", "holders", "holes", "in_use", "object_at", "owners",
    "partial", "pid", "retained", "rss", "save", "target", "types", "verdict", "warnings", "write_report",
]  # fmt: skip
MIB = 1 << 20


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Yield a Python process with some memory, while it waits."""
    folder = tmp_path_factory.mktemp("library")
    with running(python_program(KINDS[0], "holders_of_many", 40_000, 1), folder) as found:
        yield found


@pytest.fixture
def heap(target: Running) -> Iterator[library.Heap]:
    """Yield the heap of the process."""
    with library.open(target.pid) as found:
        yield found


def test_names_are_pinned() -> None:
    """Check that a released name stays, that the names are few, and that each is what it claims."""
    assert sorted(library.__all__) == NAMES
    assert [name for name in NAMES if not (getattr(library, name).__doc__ or "").strip()] == []
    assert {name: library.Table([], getattr(library, name)).columns for name in FIELDS} == FIELDS
    own = [name for name in dir(library.Heap) if not name.startswith("_")]
    assert own == OF_HEAP
    assert set(NAMES) <= set(dir(library))
    with pytest.raises(AttributeError, match="no attribute 'opne'"):
        getattr(library, "opne")  # noqa: B009


def test_nothing_is_imported_before_it_is_used() -> None:
    """Check that importing the package alone loads no module of it, and that the command's start loads none of the
    library."""
    seen = "import gdbheap, sys; print([name for name in sys.modules if name.startswith('gdbheap.')])"
    done = subprocess.run([sys.executable, "-c", seen], capture_output=True, text=True, check=True, cwd="/")
    assert done.stdout.strip() == "[]"
    seen = "import sys; from gdbheap.commands.shell.main import main; main(sys.argv[1:]); print(sorted(sys.modules))"
    for words, unwanted in ((["--version"], "gdbheap.api"), (["plot", "--help"], "gdbheap.heap")):
        command = [sys.executable, "-c", seen, *words]
        done = subprocess.run(command, capture_output=True, text=True, check=True, cwd="/")
        assert f"'{unwanted}" not in done.stdout.splitlines()[-1]


def test_answers_are_those_of_the_commands(target: Running, heap: library.Heap) -> None:
    """Check that each record has the figures of a command's JSON."""
    page = ask("", str(target.pid))
    assert heap.rss == page["rss"]["bytes"]
    assert heap.pid == target.pid and heap.target["kind"] == PROCESS
    assert [(one.path, one.bytes, one.resident) for one in heap.holders()] == [
        (row["path"], row["bytes"], row["resident"]) for row in page["holders"]
    ]
    assert [(one.id, one.bytes) for one in heap.findings()] == [(row["id"], row["bytes"]) for row in page["findings"]]
    text = gdbheap(str(target.pid)).stdout
    assert heap.verdict == page["verdict"] and str(heap).splitlines()[0] == text.splitlines()[0]
    assert heap.warnings == [] and not heap.partial
    assert (heap.in_use or 0) + (heap.free or 0) <= sum(row["virtual"] for row in page["ledger"] if not row["parent"])
    # Other processes change the figures of the container, which is named where it lacks memory.
    own, asked = (
        re.sub(r"^Container .*", "", one, flags=re.M | re.S).rstrip().splitlines()[2:] for one in (str(heap), text)
    )
    assert own == asked


def test_lists_are_those_of_the_commands(target: Running, heap: library.Heap) -> None:
    """Check types, holes, blocks and retained bytes; a partial list states what it leaves out."""
    types = {row["type"]: row["count"] for row in next(lists(ask("pyobjects", str(target.pid), "--top=all")))}
    assert {row.type: row.count for row in heap.types()} == types
    assert heap.types(3).more == len(types) - 3 and len(heap.types()[:3]) == 3
    holes = {row["address"]: row["size"] for row in next(lists(ask("holes", str(target.pid), "--min=4K", "--top=all")))}
    assert {hole.address: hole.size for hole in heap.holes(min="4K")} == holes
    chunks = {
        row["address"]: row["size"] for row in next(lists(ask("chunks", str(target.pid), "--min=64K", "--top=all")))
    }
    assert {block.address: block.size for block in heap.blocks(min="64K")} == chunks
    first = heap.retained()[0]
    assert first.address is not None and first.retained == heap.object_at(first.address).retained
    by_type = heap.retained(by="type")[:10]
    assert isinstance(by_type, library.Table) and by_type[0].retained >= by_type[1].retained
    largest = heap.owners()
    assert largest[0].bytes >= heap.holders()[0].bytes and len(heap.owners(top=2)) == 2


def lists(document: dict[str, Any]) -> Iterator[list[Any]]:
    """Yield the lists of rows of an answer, whatever their names are."""
    beside = ("warnings", "damage", "targets", "next")
    yield from (value for key, value in document.items() if isinstance(value, list) and key not in beside)


def test_records_know_their_heap(heap: library.Heap) -> None:
    """Check that a block knows its kind, its owner and its path, and an object its references."""
    found = [block for block in heap.blocks(min="16K") if block.owner is not None and block.owner.address]
    block = next(block for block in found if (block.path() or "").startswith("sys.modules"))
    assert block.end == block.address + block.size and block.kind and block.what
    owner = block.owner
    assert owner is not None and owner.address is not None
    held = heap.object_at(owner.address)
    assert held.type == owner.type and held.owner is not None and held.owner.what == "object"
    path, above = held.path(), held.referrers()
    assert path is not None and (block.path() or "").startswith(path)
    assert above[0].certain and above[0].object.address
    assert heap.block_at(owner.address).size == held.size
    with pytest.raises(library.UsageError, match="is in no mapping"):
        heap.object_at(heap.target["pid"])


def test_after_close_everything_raises_value_error(target: Running) -> None:
    """Check each question, of a record too; a close releases the target, and a second one does nothing."""
    heap = library.open(target.pid)
    with heap as same:
        assert same is heap
        block, held = heap.blocks(min="16K")[0], heap.object_at(heap.retained()[0].address or 0)
    heap.close()
    assert heap.closed and "closed" in repr(heap) and block.size and held.type
    asked: list[Any] = [
        lambda: heap.rss, lambda: heap.free, lambda: heap.in_use, lambda: heap.pid, lambda: heap.target,
        lambda: heap.verdict, lambda: heap.warnings, lambda: heap.partial, lambda: str(heap), heap._repr_html_,
        heap.holders, heap.owners, heap.findings, heap.types, heap.retained, heap.blocks, heap.holes,
        lambda: heap.object_at(1), lambda: heap.block_at(1), lambda: heap.save("x"), lambda: heap.write_report("x"),
        lambda: block.owner, lambda: block.kind, block.path, held.referrers, held.path, lambda: held.retained,
        heap.__enter__, lambda: library.diff(heap, heap),
    ]  # fmt: skip
    for one in asked:
        with pytest.raises(ValueError, match="was closed"):
            one()


def test_closing_lets_the_target_go(target: Running) -> None:
    """Check that nothing is read before it is asked for, that the process is stopped only then, and that nothing of
    it is kept."""
    with library.open(target.pid, max_stop="2s") as heap:
        assert not kept() and tracer(target.pid) == 0
        assert heap.rss and kept() and tracer(target.pid) == 0
    assert not kept()
    copies = children_of(target.pid)
    with library.open(target.pid, clone=True) as heap:
        assert heap.rss and heap.holders()
    assert children_of(target.pid) == copies


def kept() -> list[Target]:
    """Return the targets that still exist."""
    gc.collect()
    return [each for each in gc.get_objects() if isinstance(each, Target)]


def children_of(pid: int) -> str:
    """Return the ids of the children of a process."""
    return Path(f"/proc/{pid}/task/{pid}/children").read_text()


def test_other_targets(target: Running, tmp_path: Path) -> None:
    """Check that a core answers like the process, and that a snapshot answers what it has and says what it lacks."""
    core, file = target.gcore(), tmp_path / "before.heap"
    with library.open(target.pid) as live, library.open(core) as dead:
        live.save(file)
        assert [row.path for row in live.holders()] == [row.path for row in dead.holders()]
        types = live.types()
        assert [row.type for row in types] == [row.type for row in dead.types()]
    with library.open(str(file)) as stored:
        assert stored.types().to_dicts() == types.to_dicts() and stored.pid == target.pid
        assert stored.rss and stored.verdict in str(stored) and stored.findings() is not None
        assert stored.retained()[0].retained and "gdbheap diff" in str(stored)
        with pytest.raises(library.Unsupported, match="does not contain blocks"):
            stored.blocks()
        stored.save(tmp_path / "again.heap")
        stored.write_report(tmp_path / "stored.html")
    with library.open(tmp_path / "again.heap") as again:
        assert again.types().to_dicts() == types.to_dicts()


def test_no_contents_in_files(tmp_path: Path) -> None:
    """Check that files have no contents, and that answers show none with no_text."""
    secret = "a-secret-that-must-not-be-kept"
    with running(python_program(KINDS[0], "secret_texts", secret, 50), tmp_path) as found:
        with library.open(found.pid, no_text=True) as heap:
            texts = [heap.object_at(row.address).text for row in heap.retained(top=20) if row.address]
            assert secret not in repr(texts) + str(heap)
        with library.open(found.pid) as heap:
            heap.save(tmp_path / "look.heap", owners=True, blocks=True)
            heap.write_report(tmp_path / "page.html")
    assert secret.encode() not in (tmp_path / "page.html").read_bytes()
    with library.open(tmp_path / "look.heap") as stored:
        assert secret not in json.dumps(stored.retained().to_dicts())


def test_differences(tmp_path: Path) -> None:
    """Check the growth between a file and a process; open heaps are not read again."""
    with running(python_program(KINDS[0], "growing", 4000), tmp_path) as found:
        with library.open(found.pid) as before:
            before.save(tmp_path / "before.heap", blocks=True)
            found.go_on()
            changed = library.diff(tmp_path / "before.heap", found.pid)
            same = library.diff(before, before)
    assert changed.same_process and changed.seconds > 0 and changed.types[0].bytes
    assert (changed.types[0].after or 0) - (changed.types[0].before or 0) == changed.types[0].bytes
    assert "Table" not in repr(changed) and changed.ledger and changed._repr_html_().startswith("<pre>")
    assert not same.types and not same.rss


def test_samples(target: Running) -> None:
    """Check samples at even times of a running process; a file and a missing process have none."""
    found = list(library.sample(target.pid, every="20ms", duration=0.07))
    assert 1 <= len(found) <= 4 and all(row.rss for row in found)
    assert [row.seconds for row in found] == sorted(row.seconds for row in found) and found[0].seconds == 0
    assert library.Table(found).columns == FIELDS["Sample"]
    with pytest.raises(library.NoTarget):
        library.sample(1 << 21)
    with pytest.raises(library.UsageError, match="at least 1ms"):
        library.sample(target.pid, every=0)


@pytest.mark.parametrize("size", ["1X", "-1", "", -1, 1.5, None, True, 1 << 70, "1" * 5000])
def test_sizes_that_are_none(size: Any, heap: library.Heap) -> None:
    """Check that a wrong size gives one line and no internal traceback."""
    for question in (heap.blocks, heap.holes):
        with pytest.raises(library.UsageError, match="."):
            question(min=size)


@pytest.mark.parametrize("wrong", [-1, 1.5, "1", True, 1 << 70])
def test_wrong_arguments(wrong: Any, heap: library.Heap) -> None:
    """Check that an invalid number of rows is refused instead of cutting from the end, and a wrong address or word
    too."""
    questions = [heap.owners, heap.types, heap.retained, heap.blocks, heap.holes]
    for question in questions:
        with pytest.raises(library.UsageError, match="is not a number of rows"):
            question(top=wrong)
    for find in (heap.block_at, heap.object_at):
        with pytest.raises(library.UsageError, match="is not an address"):
            find(wrong)
    with pytest.raises(library.UsageError, match="is not a state of a block"):
        heap.blocks(state=wrong)


class Index:
    """An integer that is not Python's, such as numpy's."""

    def __init__(self, value: int) -> None:
        self.value = value

    def __index__(self) -> int:
        return self.value


def test_integers_of_others(target: Running, heap: library.Heap) -> None:
    """Check that a number from a data frame is accepted like one of Python's."""
    address = heap.blocks(min=0, state="used", top=1)[0].address
    assert heap.block_at(Index(address)).address == address  # type: ignore[arg-type]
    assert len(heap.holes(min=Index(0), top=Index(2))) <= 2  # type: ignore[arg-type]
    with library.open(Index(target.pid)) as other:  # type: ignore[arg-type]
        assert other.pid == target.pid


def test_errors_say_what_to_do(tmp_path: Path) -> None:
    """Check that each error has the command's exit status, and the next step."""
    (tmp_path / "text").write_text("no core")
    wrong = {1 << 21: 4, str(1 << 21): 4, "/nonexistent": 4, "": 2, "a\0b": 2, 0: 4, -1: 4, 1.5: 2, True: 2, None: 2}
    for given, status in wrong.items():
        with pytest.raises(GdbheapError) as raised:
            library.open(given)  # type: ignore[arg-type]
        assert raised.value.status == status and raised.value.next and str(raised.value), given
    with library.open(tmp_path / "text") as heap, pytest.raises(library.NoTarget, match="is not a core"):
        print(heap)
    with pytest.raises(library.NotPermitted, match="reads it from inside"):
        library.open(os.getpid())
    with pytest.raises(library.UsageError, match="gdb's own Python"):
        library.here()
    with pytest.raises(library.UsageError, match="clone=True needs a process"):
        library.open(tmp_path / "text", clone=True)


def test_tables(heap: library.Heap) -> None:
    """Check the same cells in a frame, an Arrow table and a notebook; whole numbers stay whole."""
    types, holes = heap.types(), heap.holes(min=0, top=5)
    assert "<table>" in types._repr_html_() and repr(types).splitlines()[0].split()[0] == "type"
    assert repr(types[:0]) == "no rows" and [*types[1:3]] == types.rows[1:3]
    pyarrow = pytest.importorskip("pyarrow")
    for table in (types, holes, heap.blocks(min="16K"), heap.findings(), heap.holders(), types[:0]):
        assert table.to_arrow().to_pylist() == table.to_dicts()
        assert table.to_arrow().schema.field(0).type in (pyarrow.string(), pyarrow.int64())
    pytest.importorskip("pandas")
    frame = types.to_pandas()
    assert list(frame.columns) == types.columns and int(frame["own"].sum()) == sum(row.own for row in types)
    assert str(holes.to_pandas()["address"].dtype) == "int64" and len(types[:0].to_pandas()) == 0


def test_what_is_not_installed_is_said(heap: library.Heap, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that one line says what to install."""
    for module, ask_for in (("pandas", heap.types().to_pandas), ("pyarrow", heap.types().to_arrow)):
        monkeypatch.setitem(sys.modules, module, None)
        with pytest.raises(library.Unsupported, match=f"needs {module}, which is not installed.*pip install"):
            ask_for()


def test_program_without_python(tmp_path: Path) -> None:
    """Check blocks, kinds and holders of a program in C."""
    from support.programs import c_program

    with running(c_program("held", 1, 2000, 100_000, 0), tmp_path) as found, library.open(found.pid) as heap:
        assert heap.in_use and heap.owners() is not None
        block = heap.blocks(min=0, state="used")[0]
        assert block.kind and heap.object_at(block.address).size == block.size
        assert heap.types().columns == FIELDS["TypeRow"]
        with pytest.raises(library.UsageError, match="--by=module does not work for"):
            heap.retained(by="module")
        with pytest.raises(library.UsageError, match="not a state of a block"):
            heap.blocks(state="wrong")


def test_threads_ask_about_one_moment(tmp_path: Path) -> None:
    """Check that several threads that begin at once read the target once."""
    code = "kept = []\nwhile True: kept.append(bytearray(3000)); len(kept) > 20_000 and kept.clear()"
    with subprocess.Popen([sys.executable, "-c", code]) as program:
        try:
            time.sleep(0.3)
            with library.open(program.pid) as heap:
                found: list[int | None] = []
                threads = [threading.Thread(target=lambda: found.append(heap.in_use)) for _ in range(5)]
                for thread in threads:
                    thread.start()
                for thread in threads:
                    thread.join()
                assert len(found) == 5 and len(set(found)) == 1, found
        finally:
            program.kill()


ENDING = """
import os, random, sys, threading, time
import gdbheap

class Last:
    def __del__(self):
        begun = time.monotonic()
        while time.monotonic() - begun < 1:
            pass

def ask():
    while True:
        with gdbheap.open(int(sys.argv[1])) as heap:
            list(heap.types())
            asked.set()

asked, sys.last = threading.Event(), Last()
threading.Thread(target=ask, daemon=True).start()
asked.wait()
time.sleep(float(sys.argv[2]))
os.write(1, b"ends")
"""


@pytest.mark.parametrize("_case", range(3))
def test_daemon_threads_outlive_python(_case: int, target: Running, rng: random.Random) -> None:
    """Check that a program ends normally while one of its daemon threads reads a heap, and Python takes long to end."""
    command = [sys.executable, "-I", "-c", ENDING, str(target.pid), str(rng.uniform(0, 0.3))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    assert (done.returncode, done.stdout, done.stderr) == (0, "ends", "")


@pytest.mark.parametrize("target", ["\ud800", "/proc/self/mem", "a\ud800b"])
def test_strange_paths(target: str) -> None:
    """Check that the error is one of gdbheap's own."""
    with pytest.raises(GdbheapError), library.open(target) as heap:
        print(heap.rss)
    with pytest.raises(GdbheapError):
        library.diff(target, os.getpid())


def test_sources_alone_say_so() -> None:
    """Check that Python in a checkout, whose sources lack the native module, reports that in one line."""
    source = Path(__file__).resolve().parent.parent
    script = "import gdbheap\ntry:\n    gdbheap.open\nexcept ImportError as error:\n    print(error)"
    done = subprocess.run([sys.executable, "-c", script], cwd=source, capture_output=True, text=True, check=True)
    assert "start Python elsewhere" in done.stdout and str(source) in done.stdout, done
