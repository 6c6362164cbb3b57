"""The file of a snapshot: it is read back as it was written, has no contents, and any other file in its place gets
one line. The same in gdb."""

from __future__ import annotations

import json
import os
import random
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from support.gdb_side import batch, documents, home, needs_gdb
from support.library import heap_of
from support.programs import KINDS, Running, ask, gdbheap, python_program, running

from gdbheap.errors import UsageError
from gdbheap.snapshots.blocks import COLUMNS, OFFSETS
from gdbheap.snapshots.difference import difference
from gdbheap.snapshots.file import ENTRY, read, write
from gdbheap.snapshots.file import NUMBER as SCHEMA
from gdbheap.snapshots.snapshot import take

SECRET = "a-secret-that-must-not-be-kept"


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Yield a Python process with a secret in its memory."""
    folder = tmp_path_factory.mktemp("snapshots")
    with running(python_program(KINDS[0], "secret_texts", SECRET, 50), folder) as found:
        yield found


def test_read_back(target: Running, tmp_path: Path) -> None:
    """Check that a snapshot is read back unchanged, and that it has no differences from itself."""
    path = str(tmp_path / "look.heap")
    with heap_of(str(target.pid)) as heap:
        taken = take(heap, with_blocks=True)
    write(path, taken)
    found = read(path)
    # Commands of a file are not taken.
    ledger = replace(taken.snapshot.ledger, next=[])
    assert found.snapshot == replace(taken.snapshot, ledger=ledger)
    assert found.columns is not None and taken.columns is not None
    for name in (*COLUMNS, OFFSETS):
        assert getattr(found.columns, name) == getattr(taken.columns, name), name
    same = difference([taken, found])
    assert same.rss == 0 and not any(line.resident or line.virtual for line in same.ledger)
    assert same.same_process and same.block_changes == []
    assert [*same.types, *same.sizes, *same.arena_changes, *same.owners, *same.holes, *same.findings, *same.trend] == []


@pytest.mark.parametrize("options", [[], ["--owners"], ["--with-contents"]])
def test_contents(options: list[str], target: Running, tmp_path: Path) -> None:
    """Check that no text of the process is in the file, unless it was requested."""
    path = tmp_path / "look.heap"
    assert gdbheap("snapshot", str(target.pid), str(path), *options).returncode == 0
    with zipfile.ZipFile(path) as archive:
        text = archive.read(ENTRY).decode()
    assert (SECRET in text) <= ("--with-contents" in options)
    assert json.loads(text)["schema"] == SCHEMA


def test_damaged(rng: random.Random, target: Running, tmp_path: Path) -> None:
    """Check that a truncated file, or one with a changed byte, is refused in one line or is unchanged."""
    path = tmp_path / "look.heap"
    assert gdbheap("snapshot", str(target.pid), str(path), "--blocks").returncode == 0
    whole, good = path.read_bytes(), read(str(path))
    for _ in range(300):
        data = bytearray(whole)
        if rng.random() < 0.3:
            del data[rng.randrange(len(data)) :]
        else:
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        path.write_bytes(data)
        try:
            found = read(str(path))
            assert found.snapshot == good.snapshot and found.columns is not None and good.columns is not None
            assert [getattr(found.columns, name) == getattr(good.columns, name) for name in COLUMNS] == [True] * 5
        except UsageError as error:
            assert "\n" not in str(error) and str(path) in str(error)


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        (ENTRY, {"format": "gdbheap snapshot", "schema": SCHEMA + 1}, "newer gdbheap"),
        (ENTRY, {"format": "gdbheap snapshot", "schema": "1"}, "its format is not a number"),
        (ENTRY, {"format": "another", "schema": SCHEMA}, "not a gdbheap snapshot"),
        (ENTRY, {"format": "gdbheap snapshot", "schema": SCHEMA, "time": "now"}, "damaged"),
        (ENTRY, [1], "not a gdbheap snapshot"),
        ("other.json", {}, "not a gdbheap snapshot"),
    ],
)
def test_foreign(name: str, content: object, reason: str, target: Running, tmp_path: Path) -> None:
    """Check another program's zip, a newer gdbheap's snapshot, and one with fields of another kind."""
    path = tmp_path / "foreign.heap"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(name, json.dumps(content))
    done = gdbheap("diff", str(path), str(target.pid))
    assert done.returncode == 2 and reason in done.stderr and done.stderr.count("\n") == 1


def test_bad_lines(target: Running, tmp_path: Path) -> None:
    """Check one line and the right exit status; a snapshot that cannot be written leaves the older one."""
    pid, path = str(target.pid), tmp_path / "look.heap"
    for words, status, reason in (
        (["snapshot", pid], 2, "which file?"),
        (["snapshot", pid, "a", "b"], 2, "unrecognized"),
        (["snapshot", pid, str(tmp_path / "no" / "folder")], 2, "there is no folder"),
        (["snapshot", pid, str(tmp_path)], 2, "it is a folder"),
        (["snapshot", pid, str(path), "--with-contents", "--no-text"], 2, "exclude each other"),
        (["diff"], 2, "what should be compared?"),
        (["diff", pid], 2, "what should be compared?"),
        (["diff", str(tmp_path / "none.heap"), pid], 4, "none.heap"),
        (["diff", pid, pid, "--limit=much"], 2, "much"),
    ):
        done = gdbheap(*words)
        assert (done.returncode, done.stderr.count("\n")) == (status, 1), (words, done.stderr)
        assert reason in done.stderr and not done.stdout
    path.write_text("older")
    full = gdbheap("snapshot", pid, str(path), preexec_fn=lambda: _limit_files(1000))
    assert full.returncode == 2 and "cannot be written" in full.stderr
    assert path.read_text() == "older" and os.listdir(tmp_path) == ["look.heap"]


def _limit_files(size: int) -> None:
    """Limit the size of files: as on a full disk, a write fails."""
    import resource
    import signal

    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


def test_no_line_to_paste_of_a_file_s(target: Running, tmp_path: Path) -> None:
    """Check that a snapshot's maker cannot supply commands to paste, nor a variable that is no setting of a
    malloc's: commands are gdbheap's own. A finding without known texts is left out."""
    path = tmp_path / "look.heap"
    assert gdbheap("snapshot", str(target.pid), str(path)).returncode == 0
    with zipfile.ZipFile(path) as archive:
        content = json.loads(archive.read(ENTRY))
    good = {"MALLOC_TRIM_THRESHOLD_": "131072", "_RJEM_MALLOC_CONF": "dirty_decay_ms:0,muzzy_decay_ms:0",
            "OPENBLAS_NUM_THREADS": "1", "GLIBC_TUNABLES": "glibc.malloc.hugetlb=0"}  # fmt: skip
    bad = {"A=1;evil;B": "1", "LD_PRELOAD": "evil", "MALLOC_ARENA_MAX": "1;evil", "MALLOC_CONF": "prof_prefix:/evil"}
    finding = {"id": "after-fork", "bytes": 1 << 30, "figures": {"anonymous": 1 << 30, "pss": 1 << 20, "python": True},
               "commands": ["evil", "gdbheap trace -- evil"], "environment": {**good, **bad}}  # fmt: skip
    content["ledger"]["findings"] = [
        {**finding, "alternatives": [finding]},
        {**finding, "environment": {"GLIBC_TUNABLES": "glibc.malloc.x=1:glibc.rtld.evil=1"}},
        {**finding, "id": "evil", "figures": {"evil": 1}},
    ]
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(ENTRY, json.dumps(content))
    first, second = read(str(path)).snapshot.ledger.findings
    assert first.environment == good and second.environment == {} and second.commands == []
    for words in ([str(path)], [str(path), "--json"], ["report", str(path), "-o", str(tmp_path / "page.html")]):
        done = gdbheap(*words)
        assert done.returncode == 0 and "evil" not in done.stdout, done.stderr
        assert words[0] == "report" or "export MALLOC_TRIM_THRESHOLD_=131072" in done.stdout
    assert "evil" not in (tmp_path / "page.html").read_text()


@needs_gdb
def test_in_gdb(target: Running, tmp_path: Path) -> None:
    """Check that gdb writes the same file, and compares it with its own target."""
    shell, path = tmp_path / "shell.heap", tmp_path / "gdb.heap"
    assert gdbheap("snapshot", str(target.pid), str(shell)).returncode == 0
    commands = [f"heap snapshot {path}", f"heap diff {shell} {path} --json", f"heap diff {path} --json"]
    done = batch(["-p", str(target.pid)], commands, home(tmp_path))
    answers = documents(done)
    assert len(answers) == 2, done.stdout + done.stderr
    for answer in answers:
        assert answer["same_process"] and answer["types"] == [] and answer["sizes"] == []
    assert ask("diff", str(shell), str(path))["types"] == []
