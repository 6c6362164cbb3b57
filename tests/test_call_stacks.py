"""``gdbheap trace --stacks`` and ``gdbheap stacks``, compared with the program's own table and with backtraces.

Bytes are compared by function, stacks with glibc's backtrace() and Python's traceback.
"""

from __future__ import annotations

import gzip
import json
import math
import random
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from reference import call_log
from support.busy import wait_for
from support.programs import GDBHEAP, PATIENCE, SOURCES, build, interpreter_of_release, plain_environment
from support.recorded import recorder_environment

from gdbheap import _native
from gdbheap.tracing.call_stacks import Namer, _text
from gdbheap.tracing.log import BY_LOCK, BY_TIME, read_log
from gdbheap.tracing.stack_settings import STACKS_ENVIRONMENT, stack_settings

RELEASES = ("3.7", "3.8", "3.9", "3.10", "3.11", "3.12", "3.13")
LAST = (1 << 64) - 1
Table = dict[str, tuple[int, int, int, int]]


def traced(log: Path, stacks: str, *command: object, order: str = BY_LOCK) -> str:
    """Record a command and return its standard output."""
    words = [str(GDBHEAP), "trace", "-o", str(log), f"--stacks={stacks}", f"--order={order}", "--", *map(str, command)]
    done = subprocess.run(words, capture_output=True, timeout=PATIENCE, env=plain_environment(), cwd=log.parent)
    assert done.returncode == 0, done.stderr
    return done.stdout.decode()


def stacks(log: Path, *options: object) -> dict[str, Any]:
    """Return the document of gdbheap stacks about a log."""
    words = [str(GDBHEAP), "stacks", str(log), *map(str, options), "--json"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE, env=plain_environment())
    assert done.returncode == 0, done.stderr + done.stdout[:2000]
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def told(text: str) -> Table:
    """Return the figures that sites.c prints of its functions: bytes and blocks in use, and all allocated ones."""
    rows = (line.split() for line in text.splitlines() if line.startswith("site "))
    return {row[1]: (int(row[2]), int(row[3]), int(row[4]), int(row[5])) for row in rows}


def by_site(answer: dict[str, Any]) -> Table:
    """Return the same figures by the innermost frames of the log's stacks."""
    return {
        site["frame"]["name"]: (site["bytes"], site["blocks"], site["allocated_bytes"], site["allocated_blocks"])
        for site in answer["sites"]
        if site["frame"]
    }


@pytest.mark.parametrize("order", [BY_LOCK, BY_TIME])
@pytest.mark.parametrize("threads", [0, 3])
def test_bytes_by_function(threads: int, order: str, rng: random.Random, tmp_path: Path) -> None:
    """Check the exact bytes in use at the end and of all allocations, with a stack for each call."""
    log = tmp_path / "calls.log"
    table = told(traced(log, "1", build("sites"), "table", threads, 20_000, rng.getrandbits(30), order=order))
    answer = stacks(log, "--at=end")
    sites = by_site(answer)
    assert {name: sites[name] for name in table} == table
    assert answer["bytes"] == answer["in_use"] == sum(site["bytes"] for site in answer["sites"])
    assert (answer["mean"], answer["without"], answer["lost"], answer["is_whole"]) == (1, 0, 0, True)
    stacks_of = [stack for stack in answer["rows"] if stack["frames"][-1]["name"] in table]
    assert all(any(frame["name"] == "churn" for frame in stack["frames"]) for stack in stacks_of)


def test_two_moments(rng: random.Random, tmp_path: Path) -> None:
    """Check that the difference of two moments is exact, and that the peak is the moment with the most bytes in use."""
    log = tmp_path / "calls.log"
    traced(log, "all", build("sites"), "table", 0, 5_000, rng.getrandbits(30))
    first, second = sorted(rng.sample(range(1, 5_000), 2))
    one, other = (by_site(stacks(log, f"--at={call}")) for call in (first, second))
    since = stacks(log, f"--diff={first}..{second}")
    assert (since["since_call"], since["pythons"]) == (first, [])
    less = by_site(since)
    nothing = (0, 0, 0, 0)
    for name in less:
        difference = tuple(b - a for a, b in zip(one.get(name, nothing), other.get(name, nothing)))
        assert less[name] == difference, name
    peak = stacks(log)
    assert peak["bytes"] == peak["in_use"] == max(stacks(log, f"--at={call}")["bytes"]
                                                  for call in (peak["call"], first, second))  # fmt: skip


def test_a_sample_is_unbiased(rng: random.Random, tmp_path: Path) -> None:
    """Check that each function is within five standard deviations of its expected figures.

    A block of s bytes has a stack with p = 1 - exp(-s / mean), and counts s / p, whose variance is s s (1 - p) / p.
    """
    log, mean = tmp_path / "calls.log", 20_000
    table = told(traced(log, str(mean), build("sites"), "table", 2, 60_000, rng.getrandbits(30)))
    answer = stacks(log, "--at=end")
    sites = by_site(answer)
    assert answer["mean"] == mean and 0 < answer["sampled_blocks"] < sum(row[1] for row in table.values()) / 3
    for name, (in_use, _blocks, allocated, _calls) in table.items():
        # The variance of a block is at most s * mean.
        for figure, estimate in ((in_use, sites[name][0]), (allocated, sites[name][2])):
            deviation = math.sqrt(figure * mean)
            assert abs(estimate - figure) < 5 * deviation, (name, figure, estimate, deviation)


def backtraces(text: str) -> Iterator[tuple[int, int, list[int]]]:
    """Yield (block, pid, return addresses innermost first) as sites.c prints them."""
    for line in text.splitlines():
        if line.startswith("stack "):
            words = line.split()[1:]
            yield int(words[0], 16), int(words[1]), [int(word, 16) for word in words[2:]]


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Return two libraries, each of which is loaded at the former address of the other."""
    compiler, folder = shutil.which("gcc") or shutil.which("cc"), tmp_path_factory.mktemp("libraries")
    if compiler is None:
        pytest.skip("no C compiler")
    source = folder / "library.c"
    source.write_text('void pass_on(void (*f)(long), long size) { f(size); __asm__ volatile("" : : : "memory"); }\n')
    found = []
    for number in range(2):
        found.append(folder / f"library{number}.so")
        flags = ["-shared", "-fPIC", "-O1", *["-fno-omit-frame-pointer"] * number]
        subprocess.run([compiler, *flags, str(source), "-o", str(found[-1])], check=True)
    return found


def test_stacks_are_those_of_backtrace(libraries: list[Path], tmp_path: Path) -> None:
    """Check that each return address equals that of backtrace().

    The calls are made in a recursion, in qsort's comparison, in handlers on both stacks, in a thread, through libraries
    that are loaded and unloaded, in a forked child, and in a program that the child executes.
    """
    log = tmp_path / "calls.log"
    rows = list(backtraces(traced(log, "1", build("sites"), "stacks", *libraries)))
    assert len(rows) == 12 and len({pid for _block, pid, _places in rows}) == 2
    seen = 0
    for process in read_log(str(log)).processes:
        wanted = {block: places for block, pid, places in rows if pid == process.who.pid}
        if not wanted:
            continue
        found = _native.live_stacks(str(log), process.frames, 1 << 30, 1, [LAST], [], list(wanted))
        for maker in found.makers:
            if maker.address != maker.wanted:
                continue
            stack = found.stacks[maker.stack]
            places = [address for _number, address in stack.native]
            # The first is in the function that calls both. An address that a signal interrupted is no return address.
            assert not stack.cut and len(places) == len(wanted[maker.address]) + 1, (places, wanted[maker.address])
            pairs = list(zip(places[1:], wanted[maker.address]))
            assert all(exact - place in (0, 1) for place, exact in pairs), pairs
            assert sum(exact == place for place, exact in pairs) <= 1
            seen += 1
        namer = Namer(found, process.who)
        names = {frame.name for number in range(len(found.stacks)) for frame in namer.frames(number)}
        assert "told" in names or process.who.pid not in {pid for _block, pid, _places in rows}
    assert seen == len(rows)


def test_libraries_that_come_and_go_are_named(libraries: list[Path], tmp_path: Path) -> None:
    """Check that each stack names the library that was loaded at that moment, whatever its address."""
    log = tmp_path / "calls.log"
    traced(log, "1", build("sites"), "stacks", *libraries)
    pid = read_log(str(log)).processes[0].who.pid
    passed = [
        frame["file"]
        for stack in stacks(log, "--at=end", f"--process={pid}")["rows"]
        for frame in stack["frames"]
        if frame["name"] == "pass_on"
    ]
    assert sorted(set(passed)) == sorted(map(str, libraries))


@pytest.mark.parametrize("release", RELEASES)
def test_python_frames_are_those_of_traceback(release: str, tmp_path: Path) -> None:
    """Check functions, files and lines, with generators, calls from C, threads, and code objects that are freed."""
    log, python = tmp_path / "calls.log", interpreter_of_release(release)
    lines = traced(log, "1", python.executable, SOURCES / "python_sites.py").splitlines()
    rows = {row[0]: row[2] for row in map(json.loads, lines)}
    process = max(read_log(str(log)).processes, key=lambda process: len(process.frames))
    found = _native.live_stacks(str(log), process.frames, 1 << 30, 1, [LAST], [], list(rows))
    assert sorted(maker.wanted for maker in found.makers) == sorted(rows) and len(rows) > 50
    namer = Namer(found, process.who)
    assert namer.releases == [release]
    for maker in found.makers:
        frames = namer.frames(maker.stack)
        python_frames = [frame for frame in frames if frame.kind == "python"]
        mine = [[frame.file, frame.name.rsplit(".", 1)[-1], frame.line] for frame in python_frames]
        assert mine == rows[maker.wanted]
        assert frames[-1].kind == "native" and frames[0].kind == "native"


@pytest.mark.parametrize("mean", [1, 3000])
def test_the_reference_reads_the_same(mean: int, rng: random.Random, tmp_path: Path) -> None:
    """Check a recorder's file against docs/calls.md: the same number of stacks, sizes and frames, for each stage
    alone."""
    folder = tmp_path / "parts"
    folder.mkdir()
    environment = {**recorder_environment(folder), STACKS_ENVIRONMENT: stack_settings(mean)}
    words = [str(build("sites")), "table", "1", "20000", str(rng.getrandbits(30))]
    subprocess.run(words, env={**plain_environment(), **environment}, check=True, stdout=subprocess.DEVNULL)
    (data,) = call_log.files_of(folder).values()
    rows = [row for row in call_log.stacks_of(data) if isinstance(row, call_log.Recorded)]
    sizes = [call.size for call in call_log.calls_of(data) if call.kind != call_log.FREE and call.result]
    assert rows and (mean > 1 or [row.size for row in rows] == sizes)
    log = tmp_path / "calls.log"
    log.with_name("calls.log.parts").mkdir(0o700)
    shutil.move(next(folder.iterdir()), log.with_name("calls.log.parts"))
    subprocess.run([str(GDBHEAP), "trace", "--finish", "-o", str(log)], check=True, stdout=subprocess.DEVNULL)
    process = read_log(str(log)).processes[0]
    last = {row.result: row for row in rows}
    found = _native.live_stacks(str(log), process.frames, 1 << 30, mean, [LAST], [], list(last))
    assert found.makers and sum(share.allocated_blocks > 0 for share in found.moments[0].shares) == len(found.stacks)
    for maker in found.makers:
        if maker.wanted == maker.address:
            assert [place for _number, place in found.stacks[maker.stack].native] == last[maker.address].native[::-1]


def test_files_for_other_programs(rng: random.Random, tmp_path: Path) -> None:
    """Check that folded lines add up to the bytes in use, and that go's own reader finds the same bytes in the
    profile."""
    log, folded, profile = (tmp_path / name for name in ("calls.log", "stacks.folded", "stacks.pb.gz"))
    table = told(traced(log, "1", build("sites"), "table", 1, 5_000, rng.getrandbits(30)))
    answer = stacks(log, "--at=end", f"--folded={folded}", f"--pprof={profile}", f"--svg={tmp_path / 'a.svg'}",
                    f"--speedscope={tmp_path / 'a.json'}")  # fmt: skip
    assert sum(int(line.rsplit(" ", 1)[1]) for line in folded.read_text().splitlines()) == answer["bytes"]
    assert gzip.decompress(profile.read_bytes())
    printed = subprocess.run(
        [str(GDBHEAP), "stacks", str(log), "--at=end", "--format=folded"], capture_output=True, text=True
    )
    assert (printed.returncode, printed.stdout) == (0, folded.read_text())
    if shutil.which("go") is None:
        pytest.skip("no go, whose pprof reads the profile")
    for place, sample in enumerate(("inuse_space", "inuse_objects", "alloc_space", "alloc_objects")):
        words = ["go", "tool", "pprof", "-top", "-unit=B", "-nodefraction=0", f"-sample_index={sample}", str(profile)]
        done = subprocess.run(words, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        top = done.stdout
        flat = {line.split()[-1]: line.split()[0].removesuffix("B") for line in top.splitlines() if line.split()}
        for name, figures in table.items():
            assert int(flat[name]) == figures[place], (sample, name, top)


def test_without_stacks(tmp_path: Path) -> None:
    """Check that one line says that stacks are missing."""
    log = tmp_path / "calls.log"
    words = [str(GDBHEAP), "trace", "-o", str(log), "--", sys.executable, "-c", ""]
    subprocess.run(words, check=True, capture_output=True, env=plain_environment())
    done = subprocess.run([str(GDBHEAP), "stacks", str(log)], capture_output=True, text=True, env=plain_environment())
    assert done.returncode and "--stacks" in done.stderr and len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("stacks_option", ["1", "1K"])
def test_real_programs_run_as_without(stacks_option: str, tmp_path: Path) -> None:
    """Check that git, sqlite3 and a part of CPython's own tests have the same output as without recording."""
    commands = [[sys.executable, "-m", "json.tool"], ["git", "--version"]]
    if shutil.which("sqlite3"):
        rows = ";".join(f"insert into t values({n}, hex(randomblob({n % 50})))" for n in range(300))
        commands.append(["sqlite3", ":memory:", f"create table t(a, b); {rows}; select count(*), sum(a) from t"])
    for number, command in enumerate(commands):
        log = tmp_path / f"{number}.log"
        if shutil.which(command[0]) is None:
            continue
        text = '{"a": [1, 2, {"b": null}]}'
        plain = subprocess.run(command, capture_output=True, text=True, input=text, env=plain_environment())
        words = [str(GDBHEAP), "trace", "-o", str(log), f"--stacks={stacks_option}", "--", *command]
        done = subprocess.run(words, capture_output=True, text=True, input=text, env=plain_environment())
        assert (done.returncode, done.stdout) == (plain.returncode, plain.stdout), done.stderr
        processes = read_log(str(log)).processes
        assert all(process.ended and not process.lost for process in processes)


KEEPER = """import sys
def make(size):
    return bytes(size)  # line 3
kept = [make(100000 + number) for number in range(50)]
gone = make(300000)
place = id(gone)
del gone
print(place, *map(id, kept), flush=True)
sys.stdin.read()
"""


def test_at_names_the_stack_that_made_a_block(rng: random.Random, tmp_path: Path) -> None:
    """Check ``at`` on a process that is being recorded: calls that are not in the log yet are read from the recorder's
    file."""
    log = tmp_path / "calls.log"
    words = [str(GDBHEAP), "trace", "-o", str(log), "--stacks=1", "--", sys.executable, "-c", KEEPER]
    pipe = subprocess.PIPE
    with subprocess.Popen(words, stdin=pipe, stdout=pipe, text=True, env=plain_environment()) as one:
        assert one.stdin is not None and one.stdout is not None
        gone, *kept = map(int, one.stdout.readline().split())

        def recorded() -> list[int]:
            return [process.who.pid for process in read_log(str(log)).processes if process.who.words[1:2] == ["-c"]]

        # The process may have allocated before the log identifies it.
        wait_for(lambda: bool(recorded()), "the log does not name the program")
        (pid,) = recorded()
        number = rng.randrange(len(kept))
        command = [str(GDBHEAP), "at", str(pid), hex(kept[number]), f"--calls={log}"]
        done = subprocess.run([*command, "--json"], capture_output=True, text=True, env=plain_environment())
        assert done.returncode == 0, done.stderr
        made = json.loads(done.stdout)["made"]
        text = subprocess.run(command, capture_output=True, text=True, env=plain_environment()).stdout
        chain = [str(GDBHEAP), "why", *command[2:], "--json"]
        why = subprocess.run(chain, capture_output=True, text=True, env=plain_environment())
        missing = [*command[:3], hex(gone), f"--calls={log}", "--json"]
        none = subprocess.run(missing, capture_output=True, text=True, env=plain_environment())
        one.stdin.close()
        one.wait(PATIENCE)
    # The address of the block may no longer be mapped.
    assert none.returncode or json.loads(none.stdout)["made"] is None
    assert json.loads(why.stdout)["made"] == made, why.stderr
    assert made["address"] <= kept[number] < made["address"] + made["asked"]
    assert 100000 + number < made["asked"] < 100100 + number
    comprehension = [["<listcomp>", 4]] if sys.version_info < (3, 12) else []
    python_frames = [[frame["name"], frame["line"]] for frame in made["frames"] if frame["kind"] == "python"]
    assert python_frames == [["<module>", 4], *comprehension, ["make", 3]]
    assert "make (<string>:3)" in text


HOLES = """import sys
def pin(): return bytes(30000)
def large(): return bytes(400000)
gone, kept = [], []
for _ in range(20): gone.append(large()); kept.append(pin())
del gone
print(*map(id, kept), flush=True)
sys.stdin.read()
"""


def test_holes_name_the_stacks_that_made_what_pins_them(tmp_path: Path) -> None:
    log = tmp_path / "calls.log"
    words = [str(GDBHEAP), "trace", "-o", str(log), "--stacks=1", "--", sys.executable, "-c", HOLES]
    one_heap = {"PYTHONMALLOC": "malloc", "GLIBC_TUNABLES": f"glibc.malloc.mmap_threshold={1 << 30}"}
    environment, pipe = {**plain_environment(), **one_heap}, subprocess.PIPE
    with subprocess.Popen(words, stdin=pipe, stdout=pipe, text=True, env=environment) as one:
        assert one.stdin is not None and one.stdout is not None
        kept = set(map(int, one.stdout.readline().split()))
        (pid,) = (process.who.pid for process in read_log(str(log)).processes if process.who.words[1:2] == ["-c"])
        command = [str(GDBHEAP), "holes", str(pid), "--min=256K", f"--calls={log}"]
        done = subprocess.run([*command, "--json"], capture_output=True, text=True, env=plain_environment())
        text = subprocess.run(command, capture_output=True, text=True, env=plain_environment()).stdout
        one.stdin.close()
        one.wait(PATIENCE)
    assert done.returncode == 0, done.stderr
    pins = [hole[side] for hole in json.loads(done.stdout)["rows"] for side in ("before", "after") if hole[side]]
    known = [pin for pin in pins if pin["address"] in kept]
    assert len({pin["address"] for pin in known}) >= 15
    for pin in known:
        python_frames = [(frame["name"], frame["line"]) for frame in pin["made"]["frames"] if frame["kind"] == "python"]
        assert python_frames == [("<module>", 5), ("pin", 2)] and 30000 < pin["made"]["asked"] < 30100
    assert "made by pin (<string>:2) < <module> (<string>:5)" in text


@pytest.mark.parametrize("stacks_option", ["1", "4K"])
def test_nothing_crashes_in_a_storm(stacks_option: str, libraries: list[Path], tmp_path: Path) -> None:
    """Check a storm: libraries unloaded under a stack, the dynamic linker's locks, forks, and threads with small
    stacks."""
    log = tmp_path / "calls.log"
    assert traced(log, stacks_option, build("stack_storm"), *libraries, 150) == "done\n"
    processes = read_log(str(log)).processes
    assert len(processes) > 2 and all(process.ended and not process.lost for process in processes)


@pytest.mark.parametrize(
    ("width", "content", "text"),
    [
        (1, b"f\xfc", "fü"),
        (2, "日\ud83d\ude00".encode("utf-16-le", "surrogatepass"), "日\ud83d\ude00"),
        (2, b"a\0b", "a"),
        (4, "🦀\udcff".encode("utf-32-le", "surrogatepass"), "🦀\udcff"),
        (4, b"\xff\xff\xff\x7f\0\0\x11\0a\0\0\0b", "\ufffd\ufffda"),
        (3, b"abc", "?"),
    ],
)
def test_text_of_a_forged_log(width: int, content: bytes, text: str) -> None:
    """Check that no bytes of a log raise, and that the halves of a surrogate pair stay apart, as Python has them."""
    assert _text((width, content)) == text


def test_random_text_of_a_forged_log(rng: random.Random) -> None:
    """Check that random bytes become as many characters as they have numbers of the width."""
    for _ in range(2000):
        width, content = rng.choice((1, 2, 4)), rng.randbytes(rng.randrange(20))
        assert len(_text((width, content))) == len(content) // width
