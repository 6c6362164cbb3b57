"""Logs of calls that claim more than there is memory for: each has forty bytes a stage, and ends in one line."""

from __future__ import annotations

import os
import random
import resource
import signal
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

import pytest
from support.programs import gdbheap

from gdbheap import _native
from gdbheap.errors import GdbheapError
from gdbheap.host.headroom import memory_left
from gdbheap.sampling.sample import Series
from gdbheap.sampling.series import SeriesFile
from gdbheap.tracing import replayer
from gdbheap.tracing.block_makers import makers
from gdbheap.tracing.log import BY_LOCK, BY_TIME, FRAME, TIMED_STAGE, TIMES, LogWriter, RecordedProcess, read_log
from gdbheap.tracing.replay import planned, run
from gdbheap.tracing.replay_settings import Setting, recorded_setting
from gdbheap.tracing.replayer import Replayer

MEGA = 1 << 20
ADDRESS_SPACE = 256 * MEGA
STAGE = 256 << 10
GRID = 1 << 24
MALLOC, PYTHON_MALLOC, SWITCH, FREE, TICK = b"\x21", b"\xee\x08", b"\xc0", b"\x40", b"\xf2"
STACK, CODE, LOADED, MMAP = 0xEB, 0xEC, 0xED, b"\xe5"
EXHAUSTED = "there is not enough memory"


def number(value: int) -> bytes:
    """Return a number, encoded as docs/calls.md describes."""
    parts = []
    while value >= 0x80:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*parts, value])


def numbers(*values: int) -> bytes:
    """Return several numbers."""
    return b"".join(map(number, values))


def signed(value: int) -> bytes:
    """Return a signed number."""
    return number(value << 1 if value >= 0 else (-value << 1) - 1)


def part(kind: int, content: bytes) -> bytes:
    """Return an event with more than a few numbers."""
    size = len(content)
    return bytes([kind, size & 0x7F | 0x80, size >> 7 & 0x7F | 0x80, size >> 14]) + content


def blocks(place: int, call: bytes = MALLOC) -> bytes:
    """Return a stage of 130,000 blocks, each 16 bytes after the one before."""
    first = call + b"\x01" + number(place * GRID)
    following = call + b"\x0a"
    return first + following * ((STAGE - len(first) - 8) // len(following))


def filled(events: Iterable[bytes]) -> bytes:
    """Return a stage of these events."""
    stage = bytearray()
    for event in events:
        if len(stage) + len(event) > STAGE:
            break
        stage += event
    return bytes(stage)


def threads(place: int) -> bytes:
    """Return a stage of calls, each of another thread."""
    return filled(SWITCH + number(place * 50_000 + thread) + FREE + b"\x00" for thread in range(50_000))


def stacks(place: int) -> bytes:
    """Return a stage of deep stacks, each of which costs one frame in the log."""
    return filled(
        part(STACK, numbers(0, min(depth, 900), 1) + signed(place * GRID + depth) + numbers(0, 0))
        + MALLOC + b"\x01" + number(place * GRID + 16 * depth)
        for depth in range(9_000)
    )  # fmt: skip


def objects(place: int) -> bytes:
    """Return a stage of loaded objects."""
    starts = (place * GRID + 4096 * number_ for number_ in range(20_000))
    return filled(part(LOADED, numbers(start, start + 4096, 0, 0, 0)) for start in starts)


def codes(place: int) -> bytes:
    """Return a stage of code objects."""
    rows = (numbers(place * GRID + 16 * number_, 0x30B, 1, 1, 0, 1, 0, 0) for number_ in range(20_000))
    return filled(part(CODE, row) for row in rows)


def mappings(place: int) -> bytes:
    """Return a stage of mappings of a page each."""
    starts = (place * 4 * GRID + 8192 * number_ for number_ in range(8_000))
    return filled(MMAP + numbers(4096, 3, 0x22, start) for start in starts)


def log(path: Path, stages: Iterable[bytes], stack: int = 0, order: str = BY_LOCK) -> str:
    """Write a log of one process, without help of a recorder."""
    writer = LogWriter(str(path))
    writer.process(0, RecordedProcess(1234, 1, "/bin/true", "/lib/libc.so.6", ["true"], {}, None, order, stack))
    for lane, stage in enumerate(stages):
        packed = _native.pack_stage(stage)[0]
        writer.stage(0, packed) if order == BY_LOCK else writer.timed_stage(0, packed, 1, lane)
    writer.process_end(0, 0)
    writer.end(0)
    writer.close()
    return str(path)


def limited() -> None:
    """Limit a child's address space and write no core."""
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE, ADDRESS_SPACE))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def refused(path: str, words: list[str]) -> None:
    """Check that the command reports in one line that there is no memory for the log."""
    done = gdbheap(words[0], path, *words[1:], preexec_fn=limited)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1), done.stderr[-2000:]
    assert EXHAUSTED in done.stderr, done.stderr


def test_blocks_that_explode(rng: random.Random, tmp_path: Path) -> None:
    """Check blocks of malloc, in a log of some KiB."""
    path = log(tmp_path / "bomb.calls", map(blocks, rng.sample(range(1, 1 << 20), 30)))
    assert os.path.getsize(path) < 5_000
    refused(path, ["calls"])
    refused(path, ["replay"])


def test_blocks_of_python_that_explode(rng: random.Random, tmp_path: Path) -> None:
    """Check blocks of Python's own allocator, which a plan counts."""
    places = rng.sample(range(1, 1 << 20), 60)
    path = log(tmp_path / "bomb.calls", (blocks(place, PYTHON_MALLOC) for place in places))
    assert os.path.getsize(path) < 10_000
    refused(path, ["replay"])


def test_stages_at_one_time(tmp_path: Path) -> None:
    """Check stages that overlap in time, as many as there are threads, all open at once."""
    path = log(tmp_path / "bomb.calls", [TICK + b"\x02" + blocks(1)] * 800, order=BY_TIME)
    refused(path, ["calls"])
    refused(path, ["replay"])


@pytest.mark.parametrize("table", [threads, stacks, objects, codes], ids=lambda table: table.__name__)
def test_tables_that_explode(table: Callable[[int], bytes], tmp_path: Path) -> None:
    """Check threads, stacks, loaded objects and code objects: the other parts of a log."""
    count = {threads: 24, stacks: 1, objects: 6, codes: 6}[table]
    path = log(tmp_path / "bomb.calls", [blocks(1)[:20], *map(table, range(count))], stack=1)
    refused(path, ["stacks"])


def test_mappings_that_explode(tmp_path: Path) -> None:
    """Check mappings of the program's own, which a replay repeats."""
    path = log(tmp_path / "bomb.calls", map(mappings, range(1, 5)))
    with pytest.raises(MemoryError):
        _native.plan_calls(path, _frames(path), 1 << 20, None, 0, True)
    assert _native.plan_calls(path, _frames(path), 16 << 20, None, 0, True).mappings == 4 * 8_000


def test_blocks_that_no_machine_can_fill(tmp_path: Path) -> None:
    """Check that blocks that take more than the free memory when touched are refused before one is touched."""
    size = 1 << 30
    count = memory_left("self") // size + 64
    events = (b"\x20" + number(size) + b"\x01" + number(place * size) for place in range(1, count))
    path = log(tmp_path / "bomb.calls", [filled(events)])
    assert os.path.getsize(path) < 5_000
    for words in (["--fill"], ["--what-if"]):
        done = gdbheap("replay", path, *words, preexec_fn=limited)
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1), done.stderr[-2000:]
        assert "of memory are left" in done.stderr


def test_a_replay_takes_what_there_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that memory that no plan counts is limited: a mapping that does not fit is not made.

    The kernel ends a replay first.
    """
    limit, size = 64 << 20, 256 << 20
    monkeypatch.setattr(replayer, "memory_left", lambda process: limit, raising=False)
    path = log(tmp_path / "calls", [blocks(1)[:20] + MMAP + numbers(size, 3, 0x22, GRID * 64) + FREE + b"\x00"])
    with planned(path, None, True, True) as job, Replayer(job.plan, Setting(), True) as replay:
        for moment in replay.moments():
            assert moment.peak_rss < limit
            assert Path(f"/proc/{replay.pid}/oom_score_adj").read_text().strip() == "1000"


def large_blocks(count: int, size: int) -> bytes:
    """Return a stage of blocks that malloc maps one by one."""
    return filled(b"\x20" + number(size) + b"\x01" + number(place * size) for place in range(1, count + 1))


def test_a_replay_ends_where_memory_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that an allocator that writes to new blocks takes no more than the free memory, even without a request
    to fill them."""
    path, limit = log(tmp_path / "calls", [large_blocks(1_500, MEGA)]), 64 * MEGA
    monkeypatch.setattr(replayer, "memory_left", lambda process: limit, raising=False)
    with planned(path, None, False, False) as job:
        found, last = run(job, Setting().with_tunables(perturb=9))
        assert last is None and found.failure is not None and "more than the 56 MiB of memory" in found.failure
        # Untouched blocks may have any size.
        found, last = run(job, Setting())
        assert last is not None and found.failure is None and (found.usable or 0) > 1_500 * MEGA > limit


def test_a_log_has_no_block_written(tmp_path: Path) -> None:
    """Check that neither a log's glibc settings nor a recorded call of mallopt makes the replay write to all blocks."""
    perturbed = b"\xe8" + signed(-6) + signed(9)
    path = log(tmp_path / "calls", [perturbed + large_blocks(200, MEGA)])
    environment = {"GLIBC_TUNABLES": "glibc.malloc.perturb=9:glibc.malloc.arena_max=2", "MALLOC_PERTURB_": "9"}
    setting = recorded_setting(RecordedProcess(1234, 1, "/bin/true", "", ["true"], environment))
    assert setting.tunables == {"glibc.malloc.arena_max": "2"}
    with planned(path, None, False, False) as job:
        found, _last = run(job, setting)
    assert (found.usable or 0) > 200 * MEGA > 8 * (found.peak_rss or 0) > 0


@pytest.mark.parametrize(
    "value",
    [
        "1:glibc.malloc.perturb=165", "1:glibc.rtld.optional_static_tls=1", "1\0", "1\ud800", "1 sh", "$(id)", "", "-1",
        "x", "0x", "\u0661", "9" * 400,
    ],
)  # fmt: skip
def test_a_log_sets_numbers_alone(value: str, tmp_path: Path) -> None:
    """Check that a value that is no number is neither passed on nor printed for pasting, whatever the variable is."""
    path = log(tmp_path / "calls", [large_blocks(200, MEGA)])
    for environment in (
        {"MALLOC_ARENA_MAX": value, "MALLOC_TOP_PAD_": "0x1F"},
        {"GLIBC_TUNABLES": f"glibc.malloc.mmap_max={value}:glibc.malloc.top_pad=0x1F"},
        {"GLIBC_TUNABLES": f"glibc.malloc.{value}=1:glibc.malloc.check=3:glibc.malloc.top_pad=0x1F"},
    ):
        setting = recorded_setting(RecordedProcess(1234, 1, "/bin/true", "", ["true"], environment))
        pairs = [part.partition("=")[::2] for part in setting.tuned.split(":")]
        assert [pair for pair in pairs if pair != ("glibc.malloc.mmap_max", "1")] == [("glibc.malloc.top_pad", "0x1F")]
    with planned(path, None, False, False) as job:
        found, _last = run(job, setting)
    assert found.failure is None and (found.peak_rss or 0) < 50 * MEGA


def test_a_log_takes_no_huge_pages_of_the_machine() -> None:
    """Check that a log takes no huge pages of the machine's pool, which all share, but repeats the program's own
    requests."""
    for value, repeated in (("0", "0"), ("1", "1"), ("2", "1"), ("0x40000000", "1")):
        environment = {"GLIBC_TUNABLES": f"glibc.malloc.hugetlb={value}"}
        setting = recorded_setting(RecordedProcess(1, 1, "/bin/true", "", [], environment))
        assert setting.tuned == f"glibc.malloc.hugetlb={repeated}"


def test_a_replay_leaves_threads_to_others(rng: random.Random, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that the number of simultaneous threads is limited by what the machine has left."""
    count = rng.randrange(10, 40)
    path = log(tmp_path / "calls", [filled(SWITCH + number(thread) + MALLOC + b"\x01" + number(GRID + 16 * thread)
                                           for thread in range(1, count + 1))])  # fmt: skip
    with planned(path, None, False, False) as job:
        monkeypatch.setattr(replayer, "threads_left", lambda: 2 * count, raising=False)
        with Replayer(job.plan, Setting(), False) as replay:
            assert [moment.calls for moment in replay.moments()] == [count]
        monkeypatch.setattr(replayer, "threads_left", lambda: count, raising=False)
        with Replayer(job.plan, Setting(), False) as replay, pytest.raises(GdbheapError, match="more threads at once"):
            list(replay.moments())


def test_a_plan_leaves_the_disk_to_others(tmp_path: Path) -> None:
    """Check that a plan stops growing at its limit of size."""
    path = log(tmp_path / "bomb.calls", map(blocks, range(1, 4)))
    plan, most, frames = tmp_path / "plan", 1 << 20, _frames(path)
    plan.touch()
    with pytest.raises(OSError, match="No space"):
        _native.plan_calls(path, frames, 1 << 40, str(plan), most)
    assert plan.stat().st_size <= most
    assert _native.plan_calls(path, frames, 1 << 40).calls > 3 * 130_000


def test_what_there_is_room_for(rng: random.Random, tmp_path: Path) -> None:
    """Check that returned room is used again: the room of one block is enough for blocks that come and go."""
    stage, freed = blocks(1), FREE + b"\x01" + number(GRID) + (FREE + b"\x0a") * 130_000
    times = rng.randrange(2, 6)
    path = log(tmp_path / "calls", [stage, freed] * times)
    found = _native.call_stats(path, _frames(path), 16 << 20)
    assert found.whole and found.most.in_use.blocks == found.blocks // times > 120_000
    with pytest.raises(MemoryError):
        _native.call_stats(path, _frames(path), 4 << 20)


def test_blocks_that_hold_each_other(tmp_path: Path) -> None:
    """Check that blocks that all contain the requested addresses count as one maker each: the smallest."""
    stack = part(STACK, numbers(0, 0, 1) + signed(GRID) + numbers(0, 0))
    calls = (stack + b"\x20" + number((1 << 40) - place) + b"\x01" + number(place) for place in range(16, 8_000, 8))
    path = log(tmp_path / "calls", [filled(calls)], stack=1)
    found = makers(path, 1234, [9_000, 10_000])
    assert [one.address for one in found.values()] == [7_992, 7_992]


def test_somebody_listens(tmp_path: Path) -> None:
    """Check that Ctrl-C works while many open stages are read, soon after the last was unpacked."""
    path = log(tmp_path / "calls", [TICK + b"\x02" + blocks(1)] * 20, order=BY_TIME)
    heard: list[bool] = []
    _native.call_stats(path, _frames(path), 1 << 30, lambda done, total: heard.append(done == total))
    assert sum(heard) >= 3, heard

    def interrupt(done: int, total: int) -> None:
        if done == total:
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        _native.call_stats(path, _frames(path), 1 << 30, interrupt)


def _frames(path: str) -> list[tuple[int, int, int]]:
    return read_log(path).processes[0].frames


MANY, LITTLE = 300_000, 144 << 20


def many_stages(path: Path) -> Path:
    """Write a log whose stages are empty, each with its own lane."""
    log(path, [], order=BY_TIME)
    frames = b"".join(FRAME.pack(TIMED_STAGE, 0, TIMES.size) + TIMES.pack(lane, lane) for lane in range(MANY))
    with path.open("ab") as file:
        file.write(frames)
    return path


def many_rows(path: Path) -> Path:
    """Write a series of events with a thousand empty lists each."""
    SeriesFile(str(path), Series(1.0, "1", 1.0)).close()
    lists = b",".join([b"[]"] * 1000)
    row = b'{"kind":"event","event":"start","time":1,"offset":0,"pid":1,"target":{"x":[%b]}}\n' % lists
    with path.open("ab") as file:
        file.write(row * (MANY // 100))
    return path


@pytest.mark.parametrize(
    ("noun", "write", "name"), [("calls", many_stages, "many.calls"), ("report", many_rows, "many.jsonl")]
)
def test_files_that_explode(noun: str, write: Callable[[Path], Path], name: str, tmp_path: Path) -> None:
    """Check that reading a file takes less than half of the free memory, however small each part is."""
    path = write(tmp_path / name)
    more = ["-o", str(tmp_path / "page.html")] if noun == "report" else []
    limit = partial(resource.setrlimit, resource.RLIMIT_AS, (LITTLE, LITTLE))
    done = gdbheap(noun, str(path), *more, preexec_fn=limit)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1), done.stderr[-2000:]
    assert f"there is not enough memory to read {path}" in done.stderr
