"""``gdbheap record`` against the programs' own figures at each step: malloc_stats(), malloc_info(),
sys._debugmallocstats(), and the requested sizes; and the end of a recording."""

from __future__ import annotations

import json
import os
import random
import re
import resource
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.library import heap_of
from support.pool_figures import told
from support.programs import (
    GDBHEAP,
    PATIENCE,
    RELEASES,
    RESTING,
    Running,
    c_program,
    gdbheap,
    has_no_answer,
    release_program,
    running,
)
from support.recordings import ENOUGH, finish, recording

from gdbheap.allocators.glibc.allocator import GlibcAllocator
from gdbheap.errors import UsageError
from gdbheap.host.procfs import ProcessFolder
from gdbheap.host.usage import usage_of
from gdbheap.sampling.sample import Sample, Series, SeriesEvent
from gdbheap.sampling.sampled_process import SampledProcess, SampleTime
from gdbheap.sampling.sampler import Sampler
from gdbheap.sampling.series import read
from gdbheap.targets.chosen_processes import Programs

ARENA = re.compile(r"^Arena (\d+):\nsystem bytes +=\s+(\d+)\nin use bytes +=\s+(\d+)$", re.MULTILINE)
PEAK = re.compile(r'<system type="max" size="(\d+)"/>')
MMAPPED = re.compile(r'^<total type="mmap" count="(\d+)" size="(\d+)"/>$', re.MULTILINE)
# The output of malloc_info() and malloc_stats() ends with this.
LAST = "</malloc>"
# The kernel counts resident pages in batches for each CPU, and the program has other pages.
RSS_SLACK = 1 << 20


def go_on(target: Running, line: str) -> str:
    """Let a program of steps do one; return its output."""
    before = len(target.stderr)
    target.go_on(line)
    return target.stderr[before:]


def check_malloc(sample: Sample, text: str, doubts: bool) -> bool:
    """Compare with the program's output; return whether it was compared. Without ``doubts`` all must be known."""
    malloc = sample.malloc
    assert malloc is not None and malloc.mmapped is not None
    theirs = [(int(system), int(in_use)) for _index, system, in_use in ARENA.findall(text)]
    peaks = [int(peak) for peak in PEAK.findall(text)][: len(theirs)]
    mmapped = MMAPPED.findall(text)[-1]
    assert (malloc.mmapped.count, malloc.mmapped.bytes) == tuple(map(int, mmapped))
    assert [arena.system for arena in malloc.arenas] == [system for system, _ in theirs]
    assert [arena.peak for arena in malloc.arenas] == peaks
    for arena, (_system, in_use) in zip(malloc.arenas, theirs):
        assert arena.in_use == in_use or (doubts and arena.in_use is None), (arena, in_use)
    if malloc.in_use is not None:
        assert malloc.in_use == sum(in_use for _, in_use in theirs) + malloc.mmapped.bytes
    return malloc.in_use is not None


@pytest.mark.parametrize("stop", [False, True])
@pytest.mark.parametrize("threads", [0, 3])
def test_malloc_at_each_step(threads: int, stop: bool, rng: random.Random, tmp_path: Path) -> None:
    """Check each arena's system, peak and in-use bytes, and the mmapped chunks, against the program's own; unknown
    values are marked as unknown."""
    words = ["--stop"] if stop else []
    with running(c_program("steps", rng.getrandbits(30), threads), tmp_path) as target:
        with recording(tmp_path, *words, str(target.pid)) as recorder:
            # The program has not called malloc yet.
            recorder.wait(lambda found: found)
            for number in range(6):
                # The first step may allocate nothing: then there would be nothing to wait for.
                big = f"big {rng.randrange(1 << 17, 1 << 23)}"
                text = go_on(target, rng.choice(["step", "step", big]) if number else big)
                samples = recorder.during_rest(
                    lambda found: any(one.malloc and one.malloc.in_use is not None for one in found)
                )
                compared = [check_malloc(sample, text, not stop) for sample in samples]
                assert all(compared) if stop else any(compared)
                assert all((sample.stopped is not None) == stop for sample in samples)
            assert finish(recorder)[0] == 0


def test_resident_memory_at_each_step(rng: random.Random, tmp_path: Path) -> None:
    """Check that touched memory is resident, to 1 %, from each step to the next, and the page faults."""
    with running(c_program("steps", 1, 0), tmp_path) as target, recording(tmp_path, str(target.pid)) as recorder:
        base = recorder.wait(lambda found: found)[-1]
        sizes: list[int] = []
        for _ in range(8):
            if sizes and rng.random() < 0.4:
                go_on(target, "drop")
                sizes.pop()
            else:
                sizes.append(rng.randrange(20 << 20, 60 << 20))
                go_on(target, f"big {sizes[-1]}")
            for sample in recorder.during_rest():
                assert sample.rss is not None and base.rss is not None and sample.malloc and sample.malloc.mmapped
                assert abs(sample.rss - base.rss - sum(sizes)) <= sum(sizes) // 100 + RSS_SLACK
                assert 0 <= sample.malloc.mmapped.bytes - sum(sizes) <= 8192 * len(sizes)
        last = recorder.samples()[-1]
        assert last.minor_faults > base.minor_faults and last.threads == 1 and last.swap == 0


@pytest.mark.parametrize("release", RELEASES)
def test_pools_at_each_step(release: str, rng: random.Random, tmp_path: Path) -> None:
    """Check pymalloc's arenas, pools, and the blocks of each size class against the interpreter's own figures."""
    if release == "2.7":
        pytest.skip("CPython 2.7 has no sys._debugmallocstats()")
    with running(release_program(release, "pool_steps", rng.getrandbits(30)), tmp_path) as target:
        with recording(tmp_path, str(target.pid)) as recorder:
            recorder.wait(lambda found: found and found[-1].pools)
            for _ in range(4):
                theirs = told(go_on(target, ""))
                samples = recorder.during_rest(lambda found: any(one.pools and one.pools.classes for one in found))
                assert_pools(samples, theirs)


def assert_pools(samples: list[Sample], theirs: dict[str, Any]) -> None:
    """Compare all samples with the interpreter's figures."""
    for sample in samples:
        pools = sample.pools
        assert pools is not None and not pools.doubtful and pools.odd == 0
        assert pools.arenas == theirs["arenas"] and pools.bytes == theirs["arenas"] * theirs["arena_size"]
        assert pools.free_pools == theirs["free_pools"]
        if pools.classes is not None:
            ours = {row.size: (row.pools, row.used, row.free) for row in pools.classes}
            assert ours == {size: row for size, row in theirs["classes"].items() if row[0]}
            assert pools.pools == sum(row[0] for row in ours.values())


def is_doubtful(sample: Sample) -> bool:
    """Return whether a sample has an arena that changed while it was read."""
    return sample.malloc is not None and sample.malloc.is_doubtful


def test_an_arena_that_changes_is_doubtful(tmp_path: Path, rng: random.Random) -> None:
    """Check a thread that is always inside malloc: used bytes are reported only if they were the same twice, system
    bytes always."""
    with running(c_program("steps", 1, 0), tmp_path) as target, recording(tmp_path, str(target.pid)) as recorder:
        recorder.wait(lambda found: found)
        storm = subprocess.Popen(c_program("churn", rng.getrandbits(30)))
        try:
            with recording(tmp_path, str(storm.pid), name="storm.csv") as other:
                samples = other.wait(lambda found: len(found) > 20 and any(map(is_doubtful, found)))
        finally:
            storm.kill()
            storm.wait(PATIENCE)
        looked = [sample.malloc for sample in samples if sample.malloc is not None]
        assert looked and all(malloc.system > 0 for malloc in looked)
        for malloc in looked:
            for arena in malloc.arenas:
                assert not arena.doubtful or arena.in_use is None
                assert arena.in_use is None or 0 < arena.in_use <= arena.system


def test_exec_is_an_event(tmp_path: Path) -> None:
    """Check that another program in the same process is examined anew, with its own figures."""
    with running(c_program("steps", 5, 2), tmp_path) as target, recording(tmp_path, str(target.pid)) as recorder:
        recorder.wait(lambda found: found)
        go_on(target, "step")
        go_on(target, "exec")
        text = go_on(target, "big 300000")
        samples = recorder.during_rest(lambda found: found[-1].malloc is not None and found[-1].threads == 1)
        check_malloc(samples[-1], text, True)
        target.process.stdin.close()  # type: ignore[union-attr]
        target.process.wait(PATIENCE)
        recorder.process.wait(PATIENCE)
        # A program may be sampled before its malloc is used.
        kinds = [event.kind for event in recorder.series().events if event.kind != "found"]
        assert kinds == ["start", "exec", "end", "close"] and recorder.process.returncode == 0
        assert recorder.series().events[-1].reason == "ended"


@pytest.mark.parametrize("field", ["system_mem", "max_system_mem"])
def test_an_arena_that_claims_too_much(field: str, tmp_path: Path) -> None:
    """Check that a sample does not believe an arena with more bytes than there are addresses."""
    with running(c_program("steps", 5, 0), tmp_path) as target:
        go_on(target, "big 300000")
        with heap_of(str(target.pid)) as heap:
            allocator = heap.find_allocator(GlibcAllocator)
            assert allocator is not None
            main = allocator.malloc.main
        watched = SampledProcess(target.pid)
        usage = watched.usage()
        watched.look(usage)
        before = watched.sample(SampleTime(0.0, 0.0), usage).malloc
        assert before is not None and before.arenas
        with open(f"/proc/{target.pid}/mem", "r+b", 0) as memory:
            os.pwrite(memory.fileno(), (1 << 63).to_bytes(8, "little"), main.address + main.layout[field])
        after = watched.sample(SampleTime(1.0, 1.0), watched.usage()).malloc
        assert after is None or not after.arenas


# A script that runs itself anew, as often as its argument says.
ANEW = '[ "$1" -gt 0 ] && exec sh -c "$0" "$0" $(($1 - 1)); read -r line'


def test_no_program_is_known_in_the_middle_of_an_exec() -> None:
    """Check that a sample between two programs, while the kernel does not yet report the new one's addresses, has no
    figures of either."""
    process = subprocess.Popen(["sh", "-c", ANEW, ANEW, "300"], stdin=subprocess.PIPE)
    try:
        folder, images, deadline = ProcessFolder(process.pid), set(), time.monotonic() + PATIENCE
        while not Path(f"/proc/{process.pid}/syscall").read_text().startswith(RESTING):
            images.add(usage_of(folder).image)
            assert time.monotonic() < deadline
        assert len(images) > 10 and all(image is None or all(image) for image in images)
    finally:
        process.kill()
        process.communicate()


def test_between_two_programs(tmp_path: Path) -> None:
    """Check that a sample in the middle of an exec has only the kernel's figures, and that the next one reports the
    exec."""
    with running(c_program("steps", 5, 0), tmp_path) as target:
        # From then on the program has memory of malloc.
        go_on(target, "big 300000")
        watched = SampledProcess(target.pid)
        usage = watched.usage()
        assert watched.look(usage) == "start" and watched.sample(SampleTime(0.0, 0.0), usage).malloc is not None
        between = replace(usage, image=None)
        assert watched.look(between) is None and watched.sample(SampleTime(0.0, 0.0), between).malloc is None
        later = replace(usage, image=("another", 1, 1))
        assert watched.look(later) == "exec" and watched.sample(SampleTime(0.0, 0.0), later).malloc is not None


def test_command(tmp_path: Path) -> None:
    """Check that a command is recorded from its first moment on; its output and its status are its own."""
    path = tmp_path / "series.csv"
    # It goes on until two further samples are written: at least one of them began after it had the memory.
    code = (
        "import pathlib, sys, time\n"
        f"path, x = pathlib.Path({str(path)!r}), bytearray(30 << 20)\n"
        "lines = lambda: path.read_bytes().count(b'\\n') if path.exists() else 0\n"
        "most = lines() + 2\n"
        "print('mine')\n"
        "while lines() < most or lines() < 4: time.sleep(0.01)\n"
        "sys.exit(7)"
    )
    done = gdbheap("record", "--every=20ms", "-o", str(path), "--", sys.executable, "-c", code)
    assert (done.returncode, done.stdout, done.stderr) == (7, "mine\n", "")
    found = read(str(path))
    ends = [event for event in found.events if event.kind == "end"]
    assert [event.status for event in ends] == [7] and found.events[-1].kind == "close"
    assert max(sample.rss or 0 for sample in found.samples) > 30 << 20
    killed = gdbheap("record", "-o", str(path), "--", "sh", "-c", "kill -KILL $$")
    assert killed.returncode == 128 + signal.SIGKILL
    absent = gdbheap("record", "-o", str(path), "--", "/nowhere/at-all")
    assert absent.returncode == 2 and "cannot be started" in absent.stderr and read(str(path)).samples is not None


def test_children_that_start_meanwhile(tmp_path: Path) -> None:
    """Check that children and their children have their own rows from their start to their end."""
    code = """
import os, subprocess, sys, time
print(os.getpid(), flush=True)
for _ in range(3):
    child = subprocess.Popen(["sleep", "60"])
    print(child.pid, flush=True)
    while not os.path.exists("PATH") or f",{child.pid},start," not in open("PATH").read():
        time.sleep(0.05)
    child.kill()
    child.wait()
"""
    path = tmp_path / "series.csv"
    code = code.replace("PATH", str(path))
    done = gdbheap("record", "--every=20ms", "--children", "-o", str(path), "--", sys.executable, "-c", code)
    pids = set(map(int, done.stdout.split()))
    found = read(str(path))
    assert done.returncode == 0 and len(pids) == 4
    assert {sample.pid for sample in found.samples} == pids
    for kind in ("start", "end"):
        assert {event.pid for event in found.events if event.kind == kind} == pids


def test_one_that_is_found_has_been_sampled() -> None:
    """Check that a process is sampled in the round in which it is found: the reader of that event may end it."""
    with subprocess.Popen(["sleep", "60"]) as child:
        kinds = []
        for row in Sampler(Programs([child.pid])).take():
            kinds.append(row.kind if isinstance(row, SeriesEvent) else "sample")
            child.kill()
            child.wait()
        assert kinds == ["start", "sample"]


@pytest.mark.parametrize("name", ["series.csv", "series.jsonl"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_ended_by_a_signal(name: str, number: int, tmp_path: Path) -> None:
    """Check that the file is complete, that the recorder only reports what it has, and that the program runs on."""
    with running(c_program("steps", 5, 1), tmp_path) as target:
        with recording(tmp_path, str(target.pid), name=name) as recorder:
            recorder.wait(lambda found: len(found) > ENOUGH)
            assert finish(recorder, number) == (0, "")
            found = recorder.series()
            assert not found.cut and found.events[-1].kind == "close" and found.events[-1].reason == "interrupted"
        assert "Arena 0" in go_on(target, "step")


def test_duration_that_is_not_reached(tmp_path: Path) -> None:
    """Check that a recording shorter than requested is a partial answer."""
    with running(c_program("steps", 5, 0), tmp_path) as target:
        with recording(tmp_path, "--duration=1h", str(target.pid)) as recorder:
            recorder.wait(lambda found: found)
            assert finish(recorder)[0] == 1
        done = gdbheap(
            "record", str(target.pid), "--duration=200ms", "--every=50ms", "-o", str(tmp_path / "a.csv"), "--json"
        )
        answer = json.loads(done.stdout)
        assert (
            done.returncode == 0
            and answer["reason"] == "duration"
            and answer["samples"] == len(read(str(tmp_path / "a.csv")).samples)
        )
        assert answer["command"] == "gdbheap record" and answer["processes"] == 1 and answer["exit_status"] is None


@pytest.mark.parametrize("stop", [False, True])
@pytest.mark.parametrize("name", ["series.csv", "series.jsonl"])
def test_killed(name: str, stop: bool, rng: random.Random, tmp_path: Path) -> None:
    """Check that after kill -9 the written part can be read, and that the program runs on."""
    with running(c_program("steps", 5, 2), tmp_path) as target:
        for _ in range(3):
            with recording(tmp_path, *["--stop"][:stop], str(target.pid), name=name) as recorder:
                count = rng.randrange(1, 20)
                recorder.wait(lambda found, count=count: len(found) > count)
                recorder.process.kill()
                recorder.process.wait(PATIENCE)
                assert len(recorder.series().samples) > count
            assert "Arena 0" in go_on(target, "step")


@pytest.mark.parametrize("name", ["series.csv", "series.jsonl"])
def test_cut_anywhere(name: str, rng: random.Random, tmp_path: Path) -> None:
    """Check that a file that ends in the middle of a line has all complete lines before, and that a damaged line is
    named."""
    with (
        running(c_program("steps", 5, 2), tmp_path) as target,
        recording(tmp_path, str(target.pid), name=name) as recorder,
    ):
        whole = recorder.wait(lambda found: len(found) > 4)
        finish(recorder)
    data = recorder.path.read_bytes()
    lines = data.split(b"\n")
    least = len(b"\n".join(lines[: 2 if name.endswith("csv") else 1])) + 1
    for _ in range(60):
        end = rng.randrange(least, len(data))
        recorder.path.write_bytes(data[:end])
        found = recorder.series()
        assert found.samples == read_rows(whole, found) and found.cut == (data[end - 1 : end] != b"\n")
    place = rng.randrange(least, len(data) - 10)
    recorder.path.write_bytes(data[:place] + b'\x00\xff{"' + data[place:])
    try:
        recorder.series()
    except UsageError as error:
        assert "is damaged in line" in str(error)


def read_rows(whole: list[Sample], found: Series) -> list[Sample]:
    """Return as many of the first samples as another file has."""
    return whole[: len(found.samples)] if len(found.samples) <= len(whole) else found.samples


def test_both_forms_say_the_same(rng: random.Random, tmp_path: Path) -> None:
    """Check that a series that is written to one form and then to the other is read back unchanged."""
    from gdbheap.sampling.series import SeriesFile

    with running(release_program("3.11", "pool_steps", 3), tmp_path) as target:
        with recording(tmp_path, "--stop", str(target.pid)) as recorder:
            recorder.wait(lambda found: len(found) > 4 and any(one.pools for one in found))
            finish(recorder)
    found = recorder.series()
    assert found.samples and found.events
    out = SeriesFile(str(tmp_path / "other.csv"), found)
    for row in sorted([*found.samples, *found.events], key=lambda row: row.offset):
        out.add(row)
    out.close()
    assert read(str(tmp_path / "other.csv")) == found


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full")
def test_full_disk(tmp_path: Path) -> None:
    """Check one line, that the written part can be read, and that the program runs on."""
    with running(c_program("steps", 5, 1), tmp_path) as target:
        path = tmp_path / "series.csv"
        limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (9000, 9000))  # noqa: E731
        command = [str(GDBHEAP), "record", str(target.pid), "--every=5ms", "-o", str(path)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, preexec_fn=limit)
        assert done.returncode == 1 and done.stderr.count("\n") == 1 and "could not be completed" in done.stderr
        found = read(str(path))
        assert found.samples and not found.cut
        assert "Arena 0" in go_on(target, "step")
        with open("/dev/full", "wb") as full:
            command = [str(GDBHEAP), "record", str(target.pid), "-o", "-"]
            done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=PATIENCE)
        assert done.returncode == 1 and "the disk is full" in done.stderr and done.stderr.count("\n") == 1


def test_full_disk_behind_other_rows(rng: random.Random, tmp_path: Path) -> None:
    """Check that a file to which the shell appends is never cut: only an incomplete row of the recording is removed."""
    path, before = tmp_path / "all.csv", rng.randbytes(rng.randrange(20_000, 40_000)).hex()
    path.write_text(before)
    room = len(before) + rng.randrange(3000, 9000)
    limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (room, room))  # noqa: E731
    with running(c_program("steps", 5, 1), tmp_path) as target, path.open("a") as end:
        command = [str(GDBHEAP), "record", str(target.pid), "--every=5ms", "-o", "-"]
        done = subprocess.run(
            command, stdout=end, stderr=subprocess.PIPE, text=True, timeout=PATIENCE, preexec_fn=limit
        )
    assert done.returncode == 1 and "could not be completed" in done.stderr
    text = path.read_text()
    assert text.startswith(before) and len(before) + 1000 < len(text) <= room and text.endswith("\n")


def test_closed_pipe(tmp_path: Path) -> None:
    """Check that a pipe to head ends it quietly."""
    with running(c_program("steps", 5, 1), tmp_path) as target:
        line = f"{GDBHEAP} record {target.pid} --every=5ms -o - | head -n 5"
        done = subprocess.run(["sh", "-c", line], capture_output=True, text=True, timeout=PATIENCE)
        assert done.stdout.count("\n") == 5 and done.stdout.startswith("time,offset,pid,") and done.stderr == ""


def test_snapshots_beside(tmp_path: Path) -> None:
    """Check that each snapshot is a file that heap diff reads, and an event."""
    with running(c_program("steps", 5, 1), tmp_path) as target:
        with recording(tmp_path, "--snapshot-every=100ms", str(target.pid)) as recorder:
            deadline = time.monotonic() + PATIENCE
            while len([e for e in recorder.series().events if e.kind == "snapshot"] if recorder.samples() else []) < 2:
                assert time.monotonic() < deadline and recorder.process.poll() is None
                time.sleep(0.05)
            finish(recorder)
        events = [event for event in recorder.series().events if event.kind == "snapshot"]
        assert all(event.path and event.pid == target.pid and event.seconds for event in events)
        done = gdbheap("diff", str(events[0].path), str(target.pid), "--json")
        assert done.returncode == 0 and json.loads(done.stdout)["command"] == "heap diff"


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (["-o", "a.csv"], 2, "which processes"),
        (["1"], 2, "where to"),
        (["1", "-o", "a.txt"], 2, ".csv or .jsonl"),
        (["1", "-o", "/nowhere/a.csv"], 2, "cannot be written"),
        (["999999999", "-o", "a.csv"], 4, "no process"),
        (["--name=^no such name$", "-o", "a.csv"], 4, "no running process"),
        (["--cgroup=/no/such/group", "-o", "a.csv"], 4, "no control group"),
        (["1", "-o", "a.csv", "--every=0"], 2, "is not a time above 0"),
        (["1", "-o", "a.csv", "--every=1us"], 2, "is not a duration"),
        (["1", "-o", "-", "--json"], 2, "both write to standard output"),
        (["1", "--", "ls"], 2, "either processes or a command"),
        (["core.1", "-o", "a.csv"], 2, "is not a process"),
    ],
)
def test_refused(words: list[str], status: int, said: str, tmp_path: Path) -> None:
    """Check one line, the status, and that an older file is unchanged."""
    (tmp_path / "a.csv").write_text("older")
    done = gdbheap("record", *words, cwd=tmp_path)
    assert done.returncode == status and said in done.stderr and done.stderr.count("\n") == 1 and has_no_answer(done)
    assert (tmp_path / "a.csv").read_text() == "older"


@pytest.mark.parametrize(
    "text", ["", "a,b\n1,2\n", "{}\n", '{"format": "gdbheap series", "schema": 99}\n', "\x00", "[" * 9999]
)
def test_foreign_files(text: str, tmp_path: Path) -> None:
    """Check that any other file is refused in one line."""
    path = tmp_path / "a.csv"
    path.write_text(text)
    with pytest.raises(UsageError, match=r"is not a gdbheap recording|newer gdbheap"):
        read(str(path))


@pytest.mark.parametrize("name", ["notes.csv", "notes.jsonl"])
def test_another_file_stays(name: str, rng: random.Random, tmp_path: Path) -> None:
    """Check that a recording replaces no file that is not one, unless it is told to; an empty file is no loss."""
    path, text = tmp_path / name, rng.choice(["a;b;c\n1;2;3\n", "x", "\n", "{}\n{}\n", "time,offset\n", "\0\1"])
    path.write_text(text)
    words = ("record", str(os.getpid()), "-o", str(path), "--duration=10ms", "--every=10ms")
    done = gdbheap(*words)
    assert done.returncode == 2 and done.stderr.endswith("is not a recording: give another file, or --replace\n")
    assert path.read_text() == text
    assert gdbheap(*words, "--replace").returncode == 0 and len(read(str(path)).samples) > 0
    path.write_text("")
    assert gdbheap(*words).returncode == 0 and len(read(str(path)).samples) > 0
