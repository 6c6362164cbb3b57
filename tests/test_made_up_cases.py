"""Cases that few programs meet, made up: each answer is compared with what the records, the files or the kernel say."""

from __future__ import annotations

import io
import os
import random
import sqlite3
import struct
from contextlib import closing, nullcontext
from fnmatch import fnmatchcase
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]
from support.core_files import note, prstatus

from gdbheap.answers import chunks, dominator_tree
from gdbheap.answers.accounting import partition
from gdbheap.commands.inferior_calls import native_caller
from gdbheap.commands.shell import session_target
from gdbheap.commands.surface.registry import COMMANDS
from gdbheap.errors import NoTarget, UsageError
from gdbheap.export import gathered
from gdbheap.export.batches import Batch
from gdbheap.export.declaration import INTEGER, SNAPSHOTS, SQLITE, table_of
from gdbheap.export.table_files import DATABASE, write
from gdbheap.findings import container_age
from gdbheap.findings.large_chunks import rule as large_chunks
from gdbheap.findings.thresholds import OWN
from gdbheap.first_page.ledger import Line, Rss, arranged
from gdbheap.host import procfs, tmpfs
from gdbheap.host.mounts import Mount
from gdbheap.host.procfs import ProcessFolder
from gdbheap.machines.machine import X86_64
from gdbheap.report.formats.schema import SCHEMA, schema_of
from gdbheap.sampling.sampled_process import SampledProcess
from gdbheap.snapshots import file as snapshot_file
from gdbheap.snapshots.holder_changes import _name, _renamed
from gdbheap.targets.core import read_core_header
from gdbheap.targets.cores.notes import read_notes
from gdbheap.targets.elf import read_segments
from gdbheap.tracing import replay, replayer
from gdbheap.tracing.replayer import ReplayMoment
from gdbheap.watching import heap_figures
from gdbheap.watching.heap_figures import HeapFigures, HeapReader
from gdbheap.watching.metrics import COUNTER, METRICS

MIB = 1 << 20
# From <asm-generic/siginfo.h>: kill(), tkill(), and a fault at an address.
SI_USER, SI_TKILL, SEGV_MAPERR = 0, -6, 1


@pytest.mark.parametrize(
    ("code", "sender", "failed"),
    [(SI_USER, 99, False), (SI_USER, 7, True), (SI_TKILL, 7, True), (SI_TKILL, 99, False), (SEGV_MAPERR, 0, True)],
)
def test_who_ended_a_process(code: int, sender: int, failed: bool) -> None:
    """Check that a thread failed if a fault or its own process ended it, but not if another process did."""
    psinfo = bytearray(136)
    struct.pack_into("<I", psinfo, 24, 7)
    signal = bytearray(128)
    struct.pack_into("<iiiii", signal, 0, 11, 0, code, 0, sender)
    data = prstatus(7) + note(b"CORE", 3, bytes(psinfo)) + note(b"CORE", 0x53494749, bytes(signal)) + prstatus(8)
    assert [thread.failed for thread in read_notes(X86_64, data).threads] == [failed, False]


def test_program_headers_anywhere(rng: random.Random) -> None:
    """Check that program headers are found where the ELF header says, as in files that patchelf changed."""
    base = 0x7F0000000000
    for place in (64, 4096, 64 + 8 * rng.randrange(1, 500)):
        rows = [(1, 5, 0, rng.randrange(1 << 30), 0, 4096, 4096, 4096) for _ in range(3)]
        head = b"\x7fELF\x02\x01\x01" + bytes(9) + struct.pack("<HHI", 3, 62, 1)
        head += struct.pack("<QQQIHHHHHH", 0, place, 0, 0, 64, 56, len(rows), 64, 0, 0)
        data = head.ljust(place, b"\x01") + b"".join(struct.pack("<IIQQQQQQ", *row) for row in rows)
        space: Any = SimpleNamespace(read_available=lambda at, size, data=data: data[at - base : at - base + size])
        found = read_segments(X86_64, space, base)
        assert [segment.address for segment in found] == [row[3] for row in rows]


@pytest.mark.parametrize("size", [4, 5, 19, 20, 40, 63])
def test_a_core_that_ends_in_its_header(size: int) -> None:
    """Check that a file with the beginning of an ELF header is said to be truncated, and any other file is not."""
    head = b"\x7fELF\x02\x01\x01" + bytes(9) + struct.pack("<HHI", 4, 62, 1) + bytes(40)
    for data, is_said in ((head[:size], True), (b"other" + bytes(size), False)):
        with pytest.raises(NoTarget) as error:
            read_core_header(io.BytesIO(data), "core")
        assert ("its ELF header is truncated" in str(error.value)) == is_said


def test_lines_are_sorted_among_their_siblings(rng: random.Random) -> None:
    """Check that lines with the same parent are sorted, each directly followed by all lines below it."""
    for _ in range(50):
        lines = [Line("a", None, "a", rng.randrange(99), 0, 0)]
        for number in range(rng.randrange(20)):
            parent = rng.choice([None, *(line.id for line in lines)])
            name = f"{parent + '.' if parent else ''}{number}"
            lines.append(Line(name, parent, name, rng.randrange(99), 0, 0))
        found = arranged(rng.sample(lines, len(lines)), lambda line: (-line.virtual, line.id))
        assert sorted(line.id for line in found) == sorted(line.id for line in lines)
        for parent in {line.parent for line in lines}:
            own = [line for line in found if line.parent == parent]
            assert own == sorted(own, key=lambda line: (-line.virtual, line.id))
        for place, line in enumerate(found):
            below = [other.id.startswith(f"{line.id}.") for other in found[place + 1 :]]
            assert below == sorted(below, reverse=True)


@pytest.mark.parametrize("came", ["default", "risen", "set", OWN])
def test_an_own_threshold_is_not_advised(came: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that the environment is advised unless the program itself set the threshold, which overrides it."""
    monkeypatch.setattr(large_chunks, "origin_in", lambda *_: came)
    monkeypatch.setattr(large_chunks, "_is_of_small_blocks", lambda *_: False)
    par = SimpleNamespace(mmap_threshold=32 * MIB)
    evidence: Any = SimpleNamespace(
        glibc=SimpleNamespace(
            used_by_arena=lambda _least: {0: [MIB] * 100}, malloc=SimpleNamespace(par=par),
            chunks=SimpleNamespace(arena_of=lambda _address: 0),
        ),
        worth=lambda _size: True,
        heap=SimpleNamespace(target=None), large_holes=[(MIB, 90 * MIB)], released=lambda _holes: 80 * MIB,
    )  # fmt: skip
    (claim,) = large_chunks.find(evidence)
    assert bool(claim.finding.environment) == (came != OWN)


def test_the_latest_change_of_dicts(rng: random.Random) -> None:
    """Check that the latest change is one of the newest, but that no two blocks with stray numbers decide."""
    for _ in range(50):
        least = container_age.MIN_DICTS_THAT_EXCEED
        real = [rng.randrange(1000) for _ in range(rng.randrange(3 * least))]
        stray = [1 << 60] * rng.randrange(least)
        numbers = rng.sample([*real, *stray], len(real) + len(stray))
        row = SimpleNamespace(address=1, live=SimpleNamespace(count=len(numbers)))
        heap: Any = SimpleNamespace(python=SimpleNamespace(census=SimpleNamespace(rows=[row], contested=())))
        objects: Any = SimpleNamespace(
            names=SimpleNamespace(name=lambda _address: "dict"), release={"ma_version_tag": 0, "dict_version_unit": 1},
            target=SimpleNamespace(space=SimpleNamespace(word=lambda at, numbers=numbers: numbers[at])),
            instances=lambda *_, numbers=numbers: SimpleNamespace(
                rows=[SimpleNamespace(address=at) for at in range(len(numbers))]
            ),
        )  # fmt: skip
        latest = container_age._latest(heap, objects)
        if len(numbers) < least:
            assert latest is None
        else:
            assert latest is not None and sum(number >= latest for number in numbers) >= least
            assert sum(number > latest for number in numbers) < least


def test_the_row_of_a_snapshot() -> None:
    """Check that each figure of an exported process is in the column of its name."""
    names = ("host", "boot_id", "container", "kind", "pid", "start_time", "exe", "core", "python", "glibc")
    target = {name: f"the {name}" for name in names}
    lines: Any = SimpleNamespace(rss=Rss(11, 12, "smaps_rollup", 0), trim=13)
    row = dict(zip(table_of(SNAPSHOTS).names, gathered._identity(1.5, target, "0", lines, 14, 15, True)))
    expected = {"rss": 11, "swap": 12, "memory_limit": 14, "trim": 13, "damage": 15, "partial": True, "time": 1.5}
    expected |= {name.replace("start_time", "started"): text for name, text in target.items()}
    assert row == {**expected, "gdbheap": "0"}


@pytest.mark.parametrize("counts", [[], [0], [5], [3, 0, 4], [1, 1, 1, 1]])
def test_rows_of_a_database(counts: list[int], tmp_path: Path) -> None:
    """Check that the number of written rows is that of the database, for any number of batches."""
    table = table_of("types")
    batches = [Batch(n, [[1 if one.kind == INTEGER else "x"] * n for one in table.columns]) for n in counts]
    (found,) = write(str(tmp_path), SQLITE, [(table.name, lambda: iter(batches))])
    with closing(sqlite3.connect(tmp_path / DATABASE)) as database:
        assert database.execute(f"SELECT count(*) FROM {table.name}").fetchone() == (found.rows,) == (sum(counts),)


def test_when_the_next_process_is_read() -> None:
    """Check that without a process to read, nothing is due."""
    for every in (None, 0.0, 5.0):
        reader = HeapReader(every, None)
        assert reader.due == float("inf")
        reader._due = {1: 7.0, 2: 3.0}
        assert reader.due == (float("inf") if every is None else 3.0)


def test_the_kinds_of_metrics() -> None:
    """Check that the client library serves each metric as the kind that its name says: counters end in _total."""
    prometheus_client = pytest.importorskip(
        "prometheus_client", reason="the extra gdbheap[prometheus] is not installed"
    )
    from gdbheap.watching.metrics import Now
    from gdbheap.watching.prometheus import _application

    said: dict[str, Any] = {}
    application = _application(lambda: Now([]))
    text = b"".join(application({"REQUEST_METHOD": "GET", "PATH_INFO": "/"}, lambda *words: said.update(status=words)))
    kinds = dict(line.split()[2:4] for line in text.decode().splitlines() if line.startswith("# TYPE"))
    assert kinds == {one.name: "counter" if one.kind == COUNTER else "gauge" for one in METRICS}
    assert all(name.endswith("_total") == (kind == "counter") for name, kind in kinds.items()), prometheus_client


def test_the_group_of_a_variable() -> None:
    """Check that a variable that another snapshot has only in a group is compared with the nearest of its groups."""
    row: Any = SimpleNamespace(path="a.b[3].c['x']", kind="variable")
    near, far = "a.b[…].c[…]", "a.b.c"
    names = {_name(row, patterns) for patterns in ({near, far}, {near})}
    assert len(names) == 1 and _name(row, set()) == row.path and names != {far}


def test_the_figures_of_a_replay() -> None:
    """Check that each figure of a run is that of the replay's last moment with the same name."""
    fields = {name: 100 + place for place, name in enumerate(ReplayMoment.__dataclass_fields__)}
    last = ReplayMoment(**{**fields, "is_end": True})
    begun: Any = SimpleNamespace()
    seen: dict[str, Any] = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(replay, "replace", lambda _run, **more: seen.update(more))
        replay._run_of(begun, last, None, None)
    assert seen["final_rss"] == last.rss and seen["failed"] == last.failures
    assert all(seen[name] == getattr(last, name) for name in ("peak_rss", "system", "in_use", "usable"))
    assert {seen[name] for name in ("least_peak_rss", "most_peak_rss")} == {last.peak_rss}
    assert seen["seconds"] == round(last.nanoseconds / 1e9, 6)
    assert seen["ns_a_call"] == round(last.nanoseconds / last.calls, 1)


def test_mounts_below_a_server() -> None:
    """Check that no tmpfs is searched whose mount point is a server's mount or anywhere below it."""
    server = Mount(9, "/srv/remote", "nfs4", "")
    points = ["/tmp", "/srv/remote/x", "/srv/remote/x/y", "/srv/remotely", "/", "/srv"]
    mounts = [server, *(Mount(place, point, "tmpfs", "") for place, point in enumerate(points, 20))]
    found = tmpfs._of_tmpfs(mounts, {})
    assert [mount.point for mount in found] == ["/tmp", "/srv/remotely", "/", "/srv"]
    again = Mount(20, "/other", "tmpfs", "")
    assert tmpfs._of_tmpfs([*mounts, again], {}) == found


def test_pages_that_only_this_process_maps(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, rng: random.Random) -> None:
    """Check the count of a range against the bits of its pages, in parts of any size: no page outside of it counts."""
    words = [rng.choice([0, 1 << 63, 1 << 56, 1 << 63 | 1 << 56, 1 << 61]) | rng.getrandbits(50) for _ in range(200)]
    path = tmp_path / "pagemap"
    path.write_bytes(struct.pack("<200Q", *words))
    for _ in range(50):
        monkeypatch.setattr(procfs, "PAGEMAP_AT_ONCE", 8 * rng.randrange(1, 40))
        first, last = sorted(rng.sample(range(201), 2))
        alone = sum(word >> 63 & 1 and word >> 56 & 1 for word in words[first:last])
        assert procfs.exclusive_pages(str(path), first * 4096, last * 4096, 4096) == alone


def test_a_process_whose_first_thread_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that the first thread that has not ended shows the memory, and that there is none if all have ended."""
    folder = ProcessFolder(os.getpid())
    for states, place in (("RS", ""), ("ZS", "task/2/"), ("ZXZS", "task/4/"), ("ZX", None)):
        tids = range(1, len(states) + 1)
        files = {"status": states[0]} | {f"task/{tid}/status": state for tid, state in zip(tids, states)}
        monkeypatch.setattr(ProcessFolder, "tasks", lambda _self, tids=tids: tids)
        monkeypatch.setattr(
            ProcessFolder, "read", lambda _self, name, files=files: f"State:\t{files[name]} (x)\n".encode()
        )
        found = folder.living()
        assert (None if found is None else found[0]) == place


def caller(**more: Any) -> Any:
    """Return a caller of functions without a process."""
    found = native_caller.NativeCaller.__new__(native_caller.NativeCaller)
    vars(found).update({"_allow_filters": False, "_purpose": SimpleNamespace(instead="do without"), **more})
    return found


@pytest.mark.parametrize("is_allowed", [False, True])
def test_calls_under_seccomp(is_allowed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that --seccomp allows calls under a filter, but never in strict mode, in which each call is fatal."""
    made = caller(_allow_filters=is_allowed)
    for mode, may_call in (("0", True), ("1", False), ("2", is_allowed)):
        monkeypatch.setattr(native_caller.NativeCaller, "_mode", lambda _self, _tid, mode=mode: mode)
        assert (made._filtered(1) == "") == may_call


def test_a_stack_that_grows() -> None:
    """Check that the first thread's stack grows neither into the gap below it, nor beyond its limit."""
    end, gap = 1 << 40, native_caller.GUARD_GAP
    start = end - MIB
    for limit in (None, 8 * MIB):
        folder = SimpleNamespace(soft_limit=lambda _name, limit=limit: limit)
        for below in (start - 100 * MIB, start - gap - 2 * MIB):
            target = SimpleNamespace(mappings=[SimpleNamespace(end=below), SimpleNamespace(end=end)])
            made = caller(_folder=folder, _target=target)
            lowest = max(below + gap, 0 if limit is None else end - limit)
            assert made._can_grow(start, end, lowest + 1) and not made._can_grow(start, end, lowest)
            assert not made._can_grow(start, end, below + 1)


def test_the_owner_of_a_mapping() -> None:
    """Check which line has a mapping that no allocator handed out, for each combination of what the kernel says."""
    heap: Any = SimpleNamespace(is_shared_memory=lambda mapping: mapping.path == "/dev/shm/x")
    layout = partition._Layout.__new__(partition._Layout)
    layout._heap = heap
    for private, executable, writable, path in product(
        (0, 1), (0, 1), (0, 1), ("", "/usr/lib/x", "/dev/shm/x", "[heap]")
    ):
        is_anonymous = not path.startswith("/")
        mapping: Any = SimpleNamespace(
            private=private, anonymous=is_anonymous, executable=executable, writable=writable, path=path,
            is_kernels=False,
        )  # fmt: skip
        if not private:
            expected = partition.SHARED if path == "/dev/shm/x" else partition.SHARED_FILES
        elif is_anonymous:
            expected = partition.BREAK_OF_OTHERS if path == "[heap]" else partition.REST
        else:
            # Code may be writable, too, as code with text relocations is.
            expected = partition.READ_ONLY if not writable else partition.DATA
            expected = partition.CODE if executable else expected
        assert layout._owner_of(mapping, None, None) == expected


def test_the_edge_of_a_node() -> None:
    """Check that a node of the tree has the name of the edge from its own holder, the last one of its path; if another
    node dominates it, it has the whole path."""
    steps = [SimpleNamespace(edge=edge) for edge in (".first", "['second']", "[3]")]
    for count in range(4):
        way = SimpleNamespace(steps=steps[:count], expression="a.first[3]", length=count)
        made: Any = SimpleNamespace(kind_name=lambda _type: "dict", path=lambda _chain, way=way: way)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(dominator_tree, "ObjectPaths", SimpleNamespace)
            heap: Any = SimpleNamespace(
                paths=made, references=SimpleNamespace(graph=SimpleNamespace(chain=lambda number: [0, 5, number]))
            )
            node: Any = SimpleNamespace(root=None, type=1, kind="object", id=1)
            edge, whole = (steps[count - 1].edge, "a.first[3]") if count else ("", "")
            assert dominator_tree._name(heap, node, 5) == f"dict {edge}".strip()
            assert (
                dominator_tree._name(heap, node, 7) == dominator_tree._name(heap, node, None) == f"dict {whole}".strip()
            )


def test_blocks_of_a_class() -> None:
    """Check that a pattern is compared with the description of a kind of C blocks, and with its class."""
    kinds = [("std::string", None), ("Widget", "Widget"), ("array of Widget", "Widget"), ("vtable", "Gadget")]
    rows = [
        SimpleNamespace(number=n, kind=SimpleNamespace(text=text, type=type)) for n, (text, type) in enumerate(kinds)
    ]
    heap: Any = SimpleNamespace(structures_of_c=SimpleNamespace(sums=rows))
    for pattern in ("*", "Widget", "*idget", "Gadget", "std::*", "array*", "none"):
        matching = {n for n, names in enumerate(kinds) if any(fnmatchcase(name, pattern) for name in names if name)}
        assert chunks._kinds_of(heap, pattern) == matching


def test_no_holder_is_lost(rng: random.Random) -> None:
    """Check that all holders of a snapshot are there under some name when objects have other names in the last one,
    even if they exchanged their names; and that an object has its last name if no other holder has it."""
    for _ in range(200):
        count = rng.randrange(1, 6)
        names = [f"m.v{place}" for place in range(8)]
        first = dict(zip(rng.sample(names, count), range(count)))
        last = dict(zip(rng.sample(names, count), range(count)))
        tables: list[Any] = [
            {name: SimpleNamespace(address=address, what="dict") for name, address in table.items()}
            for table in (first, last)
        ]
        found = _renamed(tables[0], tables[1])
        assert sorted(row.address for row in found.values()) == sorted(first.values())
        for name, row in found.items():
            was = next(known for known, address in first.items() if address == row.address)
            now = next(known for known, address in last.items() if address == row.address)
            assert name == (was if was in last or now in first else now)


@pytest.mark.parametrize("fill", [False, True])
def test_the_limit_of_a_replay(fill: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that a replay has a limit of memory only if it touches its memory."""

    class Started(Exception):
        pass

    def start(words: list[str], **_more: Any) -> None:
        raise Started(words)

    monkeypatch.setattr(replayer.subprocess, "Popen", start)
    setting: Any = SimpleNamespace(environment=dict)
    with pytest.raises(Started) as started:
        replayer.Replayer(5, setting, fill, [9, 3, 9])
    _program, plan, switches, _threads, memory, *stops = started.value.args[0]
    assert (plan, switches, stops) == ("5", str(int(fill)), ["3", "9"]) and (int(memory) > 0) == fill


@pytest.mark.parametrize(
    ("is_copied", "left_out", "refusal"),
    [(True, [], None), (True, [(1, 2)], None), (False, [], None), (False, [], "x")],
)
def test_a_session_needs_the_whole_copy(
    is_copied: bool, left_out: list[Any], refusal: str | None, monkeypatch: pytest.MonkeyPatch, capfd: Any
) -> None:
    """Check that a session answers from a copy only if no memory is missing in it, and says why not."""
    process = SimpleNamespace(is_copied=is_copied, space=SimpleNamespace(left_out=left_out), refusal=refusal)
    monkeypatch.setattr(session_target, "stopped", lambda *_words, **_more: nullcontext(process))
    own: Any = SimpleNamespace(_limit=None)
    is_whole = is_copied and not left_out
    assert session_target.SessionTarget._copied(own, 7) == (process if is_whole else None)
    said = capfd.readouterr().err
    assert ("cannot be copied" in said) != is_whole and ("cannot be read" in said) == (refusal is not None)


@pytest.mark.parametrize("partial", [False, True])
def test_a_partial_reading_says_so(partial: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that the figures of a reading say whether it was partial, how long it stopped the process, and its PSS."""
    process = SimpleNamespace(refusal=None, stopped_seconds=0.25)
    heap = SimpleNamespace(partial=partial, disclosure=SimpleNamespace(contents=True))
    for name, value in {
        "restore_priority": lambda: None, "wait_for_end": lambda *_: None, "Heap": lambda _process: heap,
        "stopped": lambda *_words, **_more: nullcontext(process), "figures_of": lambda _heap: HeapFigures(1, None, 0),
        "exact_of": lambda _folder: SimpleNamespace(pss=77, rss=99),
    }.items():  # fmt: skip
        monkeypatch.setattr(heap_figures, name, value)
    folder: Any = None
    found = HeapFigures(**heap_figures._said(folder, None, []))
    assert (found.partial, found.held, found.proportional) == (partial, 0.25, 77) and not heap.disclosure.contents


@pytest.mark.parametrize("is_due", [False, True])
@pytest.mark.parametrize("closed", [False, True])
def test_an_open_ring_of_arenas(is_due: bool, closed: bool) -> None:
    """Check that a sample is doubtful if the ring of arenas did not close, whether free lists were read or not."""
    books = SimpleNamespace(arenas=lambda _space, _lists: ([], closed), mmapped=lambda _space: None)
    own: Any = SimpleNamespace(
        _books=books, found=SimpleNamespace(space=None), _followed=lambda *_: ([], closed),
        _lists=SimpleNamespace(is_due=is_due, do=lambda read: read()),
    )  # fmt: skip
    found = SampledProcess._malloc(own, None)  # type: ignore[arg-type]
    assert (found is not None and found.doubtful) != closed


@pytest.mark.parametrize("counts", [[-1], [3, -1], [-5, 5], [1 << 60]])
def test_numbers_of_blocks_that_cannot_be(counts: list[int], tmp_path: Path) -> None:
    """Check that a snapshot with a negative number of blocks, or with more than a process can have, is refused."""
    snapshot: Any = SimpleNamespace(blocks=SimpleNamespace(counts=counts, allocators=["x"] * len(counts), holders=None))
    source: Any = SimpleNamespace(path="x", opened=str(tmp_path / "none"))
    with pytest.raises(UsageError, match="more blocks than any process can have"):
        snapshot_file._columns(source, snapshot)


def test_the_schema_of_all_commands() -> None:
    """Check that the error of each command fits the schema of all commands, and that no other error does."""
    every = Draft202012Validator(schema_of({command.name: command.answer for command in COMMANDS.values()}))
    for name in {command.name for command in COMMANDS.values()}:
        document = {"command": name, "schema": SCHEMA, "error": {"status": 1, "what": "no", "next": []}}
        assert every.is_valid(document), name
    assert not every.is_valid({**document, "command": "heap of others"})
    assert not every.is_valid({**document, "error": {"status": 1}})
