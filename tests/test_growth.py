"""``heap growth`` and ``heap catch``: agreement with the program's own figures and with strace; no process is
harmed."""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
import weakref
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import pytest
from support import busy
from support.following import Follower, becomes_whole, code, following, patched
from support.programs import GDBHEAP, PATIENCE, Running, c_program, end_group, gdbheap, running, tracer

from gdbheap.following import following_growth
from gdbheap.following.catch import CatchRequest, catch
from gdbheap.host.procfs import Named
from gdbheap.machines.machine import Machine
from gdbheap.stack_frames import StackFrame
from gdbheap.stacks import CapturedStack, Stacks
from gdbheap.targets.following import LocalProcess, StartedProgram

PAGE = 4096
CALLS = ("brk", "mmap", "munmap", "mremap")
STRACE = shutil.which("strace")
# A line of strace: "123 mmap(NULL, 8192, PROT_READ…, MAP_PRIVATE|MAP_ANONYMOUS, -1, 0) = 0x7f…".
LINE = re.compile(r"^(\d+)\s+(\w+)\((.*)\)\s+= (\S+)")
URG, WINCH, CHLD = 23, 28, 17


def grows(rng: random.Random, *caught: int) -> list[str]:
    """Return the command of a program that grows by a schedule, and handles these signals."""
    return c_program("grows", rng.randrange(1, 1 << 20), 40, *caught)


def said(target: Running) -> dict[str, Any]:
    """Return the figures that the program prints."""
    found: dict[str, Any] = json.loads(target.stderr.splitlines()[-1])
    return found


def by_id(answer: dict[str, Any]) -> dict[str, tuple[int, int]]:
    """Return {id: (calls, bytes)} of all operations."""
    return {row["id"]: (row["calls"], row["bytes"]) for row in answer["operations"]}


def from_function(answer: dict[str, Any], name: str, system_call: str) -> tuple[int, int]:
    """Return the calls and bytes of the stacks with these two innermost frames."""
    found = [
        (row["calls"], row["bytes"])
        for row in answer["sites"]
        if len(row["frames"]) > 1
        and row["frames"][-2]["name"] == name
        and row["frames"][-1]["name"].lstrip("_").startswith(system_call)
    ]
    return sum(calls for calls, _ in found), sum(size for _, size in found)


@pytest.mark.parametrize("caught", [(), (URG,), (URG, WINCH)])
def test_schedule(caught: tuple[int, ...], rng: random.Random, tmp_path: Path) -> None:
    """Check calls and bytes of each kind to the byte, in several threads of which some block all signals; no handler
    runs, the child is correct, and afterwards the code is as before."""
    with running(grows(rng, *caught), tmp_path) as target:
        before = code(target.pid)
        with following(target.pid, "growth", str(target.pid)) as follower:
            target.go_on()
            answer = follower.answer()
        truth = said(target)
        assert patched(target.pid, before) == 0
        target.go_on()
    found = by_id(answer)
    assert from_function(answer, "map", "mmap") == tuple(truth["mmap"])
    assert from_function(answer, "step", "mremap") == tuple(truth["mremap"]) == found["mremap"]
    assert found["munmap"] == tuple(truth["munmap"])
    assert found["failed"][0] == truth["failed"]
    assert (answer["brk"]["calls"], answer["brk"]["bytes"]) == tuple(truth["brk"])
    assert truth["handled"] == 0
    assert answer["cost"]["stops"] == sum(calls for calls, _ in found.values())
    assert sum(row["bytes"] for row in answer["sites"]) == answer["brk"]["bytes"] + answer["mmap"]["bytes"]
    check_distribution(answer)


def check_distribution(answer: dict[str, Any]) -> None:
    """Check that rows add up to their totals, and that each size is in its row."""
    for kind in ("brk", "mmap"):
        rows = answer[kind]["sizes"]
        assert sum(row["calls"] for row in rows) == answer[kind]["calls"]
        assert sum(row["bytes"] for row in rows) == answer[kind]["bytes"]
        assert all(row["from"] * row["calls"] <= row["bytes"] <= row["to"] * row["calls"] for row in rows)


def test_mappings_agree(rng: random.Random, tmp_path: Path) -> None:
    """Check that the calls turn the mappings at the beginning into those at the end, in four threads at once."""
    with running(grows(rng), tmp_path) as target:
        with following(target.pid, "growth", str(target.pid), "--no-stacks") as follower:
            for _ in range(5):
                target.go_on()
            answer = follower.answer()
    assert answer["unseen"] == {"came": 0, "went": 0, "by_stacks": 0}
    assert answer["sites"] == []


def test_three_signals_handled(rng: random.Random, tmp_path: Path) -> None:
    """Check that gdbheap does not touch a process that handles all possible signals, and prints one line."""
    with running(grows(rng, URG, WINCH, CHLD, signal.SIGCONT), tmp_path) as target:
        before = code(target.pid)
        done = gdbheap("growth", str(target.pid), "--duration=1")
        assert (done.returncode, len(done.stderr.splitlines())) == (5, 1)
        assert "SIGURG" in done.stderr and code(target.pid) == before


PROGRAMS = (
    [
        sys.executable,
        "-c",
        "import json, decimal; x = [bytes(n) for n in range(3000)]; print(len(json.dumps([1] * 9999)))",
    ],
    ["sort", "--parallel=2", "/proc/self/maps", "/proc/self/smaps"],
    ["bash", "-c", "for i in 1 2 3; do ls -R /usr/share/doc > /dev/null; done; echo $i"],
)


@pytest.mark.skipif(STRACE is None, reason="no strace")
@pytest.mark.parametrize("command", PROGRAMS, ids=["python", "sort", "bash"])
def test_as_strace(command: list[str], tmp_path: Path) -> None:
    """Compare calls of each kind and their bytes with strace, for a program and all that it starts, without random
    addresses."""
    quiet = ["sh", "-c", 'exec "$@" > /dev/null', "sh", *command]
    quiet = ["setarch", "-R", *quiet] if shutil.which("setarch") else quiet
    counted = count_by_strace(quiet, tmp_path / "strace")
    profile = tmp_path / "pprof"
    files = ["--folded", str(tmp_path / "folded"), "--pprof", str(profile)]
    answer = Follower("growth", *files, "--top=all", "--", *quiet).ends()
    rows = by_id(answer)
    assert sum(calls for calls, _ in rows.values()) == sum(calls for calls, _ in counted.values())
    for name in ("mmap", "munmap", "brk"):
        ids = {"mmap": ("mmap", "mmap.file", "reserve")}.get(name, (name,))
        assert sum(rows[id][1] for id in ids if id in rows) == counted[name][1], name
    folded = [int(line.rsplit(" ", 1)[1]) for line in (tmp_path / "folded").read_text().splitlines()]
    assert sum(folded) == answer["brk"]["bytes"] + answer["mmap"]["bytes"]
    if go := shutil.which("go"):
        command = [go, "tool", "pprof", "-raw", str(profile)]
        raw = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        samples = raw.split("Samples:")[1].split("Locations")[0]
        assert "alloc_objects/count alloc_space/bytes" in samples
        rows = re.findall(r"^\s+(\d+)\s+(\d+): ", samples, re.MULTILINE)
        assert sum(int(size) for _calls, size in rows) == sum(folded)
        assert sum(int(calls) for calls, _size in rows) == sum(row["calls"] for row in answer["sites"])


def count_by_strace(command: Sequence[str], path: Path) -> dict[str, tuple[int, int]]:
    """Return {call: (calls, bytes)} from strace: whole pages mapped and unmapped, and the rise of breaks."""
    names = (*CALLS, "madvise", "mprotect")
    subprocess.run(
        [str(STRACE), "-f", "-q", "-o", str(path), "-e", f"trace={','.join(names)}", "-e", "signal=none", *command],
        check=True, timeout=PATIENCE, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    sums = {name: [0, 0] for name in names}
    breaks: dict[str, int] = {}
    for line in whole_lines(path.read_text()):
        found = LINE.match(line)
        if found is None:
            continue
        pid, name, arguments, result = found.groups()
        sums[name][0] += 1
        if name == "brk":
            now = int(result, 16)
            sums[name][1] += max(0, now - breaks.get(pid, now) if arguments != "NULL" else 0)
            breaks[pid] = now
        elif name in ("mmap", "munmap") and not result.startswith("-1"):
            sums[name][1] += -(-int(arguments.split(", ")[1]) // PAGE) * PAGE
    return {name: (calls, size) for name, (calls, size) in sums.items()}


def whole_lines(text: str) -> list[str]:
    """Return strace's lines, with interrupted lines joined again."""
    begun: dict[str, str] = {}
    lines = []
    for line in text.splitlines():
        pid, rest = line.split(None, 1)
        if rest.endswith("<unfinished ...>"):
            begun[pid] = f"{pid} {rest.removesuffix('<unfinished ...>').rstrip()}"
        elif rest.startswith("<..."):
            lines.append(f"{begun.pop(pid)}{rest.split('resumed>', 1)[1].lstrip()}")
        else:
            lines.append(line)
    return lines


def test_ends_with_its_program(tmp_path: Path) -> None:
    """Check that arguments, output and status are the program's own, and that a missing program gives one line."""
    done = gdbheap("growth", "--no-stacks", "--", "sh", "-c", "echo of its own; exit 3")
    assert "of its own" in done.stdout and "ended with status 3" in done.stdout and done.returncode == 0
    done = gdbheap("growth", "--", str(tmp_path / "nothing"))
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1), done.stderr


FORKS = """
import os
for _ in range(30):
    if os.fork() == 0:
        kept = bytes(1 << 20)
        os._exit(0)
    os.wait()
"""


def test_readers_of_very_many_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Check a program that starts processes one after the other: ended processes hold no descriptors and no memory."""
    alive: weakref.WeakSet[Stacks] = weakref.WeakSet()
    most = 0

    class Counted(Stacks):
        def __init__(self, process: Named, machine: Machine) -> None:
            nonlocal most
            super().__init__(process, machine)
            alive.add(self)
            most = max(most, len(alive))

    monkeypatch.setattr(following_growth, "Stacks", Counted)
    monkeypatch.setattr(following_growth, "MAX_READERS", 4)
    program = StartedProgram([sys.executable, "-I", "-c", FORKS])
    answer = following_growth.follow(program, following_growth.FollowRequest(), lambda _places: None)
    assert sum(stack.calls for stack in answer.sites if stack.bytes >= 1 << 20) >= 30
    assert most <= 6


DEAF = """import mmap, signal, sys, time
signal.signal(signal.SIGINT, signal.SIG_IGN)
signal.signal(signal.SIGTERM, signal.SIG_IGN)
for number in range(600):
    mmap.mmap(-1, 1 << 20)
    with open(sys.argv[1], "a") as file:
        file.write(".")
    time.sleep(0.05)
"""


@pytest.mark.parametrize(
    ("sent", "status", "words"),
    [
        ([signal.SIGINT], 0, "runs on"),
        ([signal.SIGTERM], 0, "runs on"),
        ([signal.SIGHUP], 0, "runs on"),
        ([signal.SIGINT, signal.SIGINT], 1, "interrupted"),
        ([signal.SIGKILL], -9, ""),
    ],
)
def test_its_program_hears_no_signal(sent: list[signal.Signals], status: int, words: str, tmp_path: Path) -> None:
    """Check that the first signal ends the measurement and the second the command; the program goes on as before."""
    marks, output, before = tmp_path / "marks", tmp_path / "output", guards()
    marks.touch()
    command = [str(GDBHEAP), "growth", "--", sys.executable, "-c", DEAF, str(marks)]
    with open(output, "wb") as stream, in_session(command, stream) as process:
        wait_for_size(marks, 3)
        for number in sent:
            process.send_signal(number)
            time.sleep(0.1)
        assert process.wait(PATIENCE) == status
        assert words in output.read_text()
        # A call that is never resumed would fail.
        wait_for_size(marks, marks.stat().st_size + 3)
        assert "Error" not in output.read_text()
    deadline = time.monotonic() + PATIENCE
    while guards() - before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert guards() <= before


@contextlib.contextmanager
def in_session(command: list[str], stream: BinaryIO) -> Iterator[subprocess.Popen[bytes]]:
    """Start a command in its own process group, and end the whole group afterwards."""
    process = subprocess.Popen(command, stdout=stream, stderr=stream, start_new_session=True)
    try:
        yield process
    finally:
        end_group(process)


def wait_for_size(file: Path, size: int) -> None:
    """Return once a file has ``size`` bytes."""
    deadline = time.monotonic() + PATIENCE
    while file.stat().st_size < size:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def guards() -> set[str]:
    """Return the guard processes of gdbheap."""
    found = set()
    for comm in Path("/proc").glob("[0-9]*/comm"):
        with contextlib.suppress(OSError):
            if comm.read_bytes() == b"gdbheap guard\n":
                found.add(comm.parent.name)
    return found


def kill_after(seconds: float, target: Running, *arguments: str) -> None:
    """Kill a command that follows the program, this long after the program was told to continue."""
    with following(target.pid, *arguments) as follower:
        write_line(target)
        time.sleep(seconds)
        follower.process.kill()


def test_survives_kills(rng: random.Random, tmp_path: Path) -> None:
    """Check that a command that is killed at any moment does no harm, and that its guard restores the code."""
    with running(grows(rng), tmp_path) as target:
        before = code(target.pid)
        for _ in range(10):
            kill_after(0.02 * rng.random(), target, "growth", str(target.pid))
            assert becomes_whole(target.pid, before, PATIENCE)
        target.go_on()
        assert said(target)["handled"] == 0
        assert target.process.poll() is None


# Maps and unmaps memory without end, and writes how often into the file.
MAPS = """
import mmap, os, sys
counter = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
for number in range(1 << 62):
    mmap.mmap(-1, 1 << 20).close()
    os.pwrite(counter, b"%020d" % number, 0)
"""


@pytest.mark.parametrize("words", [("growth",), ("catch", "malloc", "--min=1", "--count=0")], ids=lambda one: one[0])
def test_ctrl_z_stops_no_process(words: tuple[str, ...], tmp_path: Path) -> None:
    """Check that a process that is followed runs on after Ctrl-Z, which stops gdbheap once the process is released."""
    file = tmp_path / "counter"
    noun, *options = words
    with subprocess.Popen([sys.executable, "-c", MAPS, str(file)]) as target:
        try:
            busy.wait_for(lambda: file.exists() and file.stat().st_size > 0, "it did not start")
            with following(target.pid, noun, str(target.pid), *options) as follower:
                follower.process.send_signal(signal.SIGTSTP)
                begun = int(file.read_text())
                busy.wait_for(lambda: int(file.read_text()) > begun + 20, "the process does not run")
                follower.process.send_signal(signal.SIGINT)
                busy.wait_for(lambda: not tracer(target.pid), "the process is still traced")
                # Now the signal stops gdbheap, which then runs on.
                wait_for_state(follower.process.pid, "T")
                follower.process.send_signal(signal.SIGCONT)
                assert follower.process.wait(PATIENCE) == 0
        finally:
            target.kill()


def test_group_stop(rng: random.Random, tmp_path: Path) -> None:
    """Check that job control works while the process is followed: a stopped process stays stopped, then it
    continues."""
    with running(grows(rng), tmp_path) as target:
        with following(target.pid, "growth", str(target.pid)) as follower:
            target.process.send_signal(signal.SIGSTOP)
            wait_for_state(target.pid, "T")
            target.process.send_signal(signal.SIGCONT)
            wait_for_state(target.pid, "S")
            target.go_on()
            follower.answer()
        target.go_on()


def wait_for_state(pid: int, wanted: str) -> None:
    """Return once the process is in that state, whether it is traced or not ("t")."""
    deadline = time.monotonic() + PATIENCE
    state = ""
    while state.upper() != wanted and time.monotonic() < deadline:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        time.sleep(0.005)
    assert state.upper() == wanted


def test_end_of_the_process(rng: random.Random, tmp_path: Path) -> None:
    """Check that the answer ends with the process, and is complete."""
    with running(grows(rng), tmp_path) as target:
        with following(target.pid, "growth", str(target.pid)) as follower:
            target.go_on()
            target.process.kill()
            target.process.wait()
            answer = follower.ends()
    assert answer["why_ended"] == "gone" and answer["mmap"]["calls"] > 0


FUNCTIONS = ("malloc", "calloc", "realloc", "free")


@pytest.mark.parametrize("function", FUNCTIONS)
def test_catch(function: str, rng: random.Random, tmp_path: Path) -> None:
    """Check that exactly the calls of that size are caught among hundreds of thousands, with the calling function."""
    size = 8 * rng.randrange(5_000, 100_000)
    with running(c_program("asks", size), tmp_path) as target:
        before = code(target.pid)
        arguments = ("catch", str(target.pid), function, f"--size={size}", "--count=0")
        with following(target.pid, *arguments) as follower:
            for _ in range(3):
                target.go_on()
            answer = follower.answer()
        assert patched(target.pid, before) == 0
        target.go_on()
    expected = {"malloc": 6, "calloc": 3, "realloc": 3, "free": 12}[function]
    assert len(answer["rows"]) == expected
    for call in answer["rows"]:
        assert [frame["name"] for frame in call["frames"]][-2:] == ["wanted", function]
        if function == "free":
            assert chunk_size(size) <= call["asked"] <= max(chunk_size(size) + 16, -(-(size + 16) // PAGE) * PAGE)
        else:
            assert call["asked"] == size
        assert (call["address"] is None) == (function in ("malloc", "calloc"))


def chunk_size(size: int) -> int:
    """Return the size of the chunk for a request (glibc malloc/malloc.c, request2size)."""
    return max(32, (size + 23) // 16 * 16)


def test_catch_range(rng: random.Random, tmp_path: Path) -> None:
    """Check a range of sizes, with the default of one call: the first."""
    size = 8 * rng.randrange(5_000, 100_000)
    with running(c_program("asks", size), tmp_path) as target:
        arguments = ("catch", str(target.pid), "malloc", f"--min={size - 7}", f"--max={size + 7}")
        with following(target.pid, *arguments) as follower:
            target.go_on()
            answer = follower.ends()
        assert [call["asked"] for call in answer["rows"]] == [size]
        with following(target.pid, "catch", str(target.pid), "malloc", f"--min={size + 1}") as follower:
            target.go_on()
            assert follower.answer()["rows"] == []


def test_catch_keeps_registers(rng: random.Random, tmp_path: Path) -> None:
    """Check that a call has its original registers, whether it is caught or not."""
    size, calls = rng.randrange(1, 1 << 40), 300_000
    with running(c_program("enters", size, rng.randrange(1, 1 << 30)), tmp_path) as target:
        arguments = ("catch", str(target.pid), "realloc", f"--size={size}", "--count=0", "--top=all")
        with following(target.pid, *arguments) as follower:
            for _ in range(3):
                target.go_on()
            answer = follower.answer()
        assert said(target) == {"calls": calls, "wrong": 0}
    assert len(answer["rows"]) == calls // 1000


def await_rest(pid: int) -> None:
    """Wait until all threads sleep and have no pending signal."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        texts = [path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/status")]
        pending = [int(line.split()[1], 16) for text in texts for line in text.splitlines() if "Pnd:" in line]
        if not any(pending) and all(re.search(r"^State:\tS", text, re.MULTILINE) for text in texts):
            return
        time.sleep(0.0005)
    raise AssertionError("it does not come to rest")


def test_waits_go_on() -> None:
    """Check that ignored signals end no wait: they wake threads only while these are traced, one at a time
    (docs/safety.md describes several)."""
    (program,) = c_program("waiting")
    with subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdout.readline() == b"ready\n"
        for _ in range(5):
            with following(process.pid, "growth", str(process.pid)) as follower:
                # A signal at the end of a stop may wake one thread while another one takes it, as with several signals.
                await_rest(process.pid)
                for number in (URG, WINCH, CHLD) * 20:
                    process.send_signal(number)
                    await_rest(process.pid)
                follower.answer()
        process.communicate()
    assert process.returncode == 0


def test_catch_survives_kills(rng: random.Random, tmp_path: Path) -> None:
    """Check that a process runs on, unchanged, if the command is killed at any moment amid caught calls."""
    with running(c_program("asks", 8 * rng.randrange(5_000, 100_000)), tmp_path) as target:
        before = code(target.pid)
        for number in range(10):
            arguments = ("catch", str(target.pid), FUNCTIONS[number % 4], "--min=4096", "--count=0")
            kill_after(0.05 * rng.random(), target, *arguments)
            assert becomes_whole(target.pid, before, PATIENCE)
        target.go_on()
        assert target.process.poll() is None


def test_catch_what_grows(rng: random.Random, tmp_path: Path) -> None:
    """Check that only the large calls are caught, which get memory from the kernel, among hundreds of thousands."""
    with running(c_program("asks", 8 * rng.randrange(200_000, 300_000)), tmp_path) as target:
        with following(target.pid, "catch", str(target.pid), "malloc", "--grows", "--count=0") as follower:
            target.go_on()
            answer = follower.answer()
    assert answer["rows"]
    for call in answer["rows"]:
        names = [frame["name"] for frame in call["frames"]]
        assert "malloc" in names and call["grown"] > 0 and call["asked"] is None
    assert any("wanted" in [frame["name"] for frame in call["frames"]] for call in answer["rows"])


@pytest.mark.parametrize("grows", [False, True])
def test_catch_reads_names_later(
    grows: bool, rng: random.Random, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Check that stacks get their names when no thread is stopped any more: a file may have very many symbols."""
    size, tracers = 8 * rng.randrange(200_000, 300_000), []
    name = Stacks.name

    def checked(stacks: Stacks, captured: CapturedStack) -> tuple[StackFrame, ...]:
        status = Path(f"/proc/{target.pid}/status").read_text()
        tracers.append(re.findall(r"^TracerPid:\t(\d+)$", status, re.MULTILINE))
        return name(stacks, captured)

    monkeypatch.setattr(Stacks, "name", checked)
    with running(c_program("asks", size), tmp_path) as target:
        wanted = CatchRequest("malloc", None if grows else size, grows=grows, duration=PATIENCE)
        found = catch(LocalProcess(target.pid), wanted, lambda: write_line(target))
        target.rest()
    (call,) = found.rows
    assert "malloc" in [frame.name for frame in call.frames] and tracers == [["0"]]


def write_line(target: Running) -> None:
    """Let the program continue, without waiting for it."""
    assert target.process.stdin is not None
    target.process.stdin.write(b"x")
    target.process.stdin.flush()


def test_catch_of_what_is_none(tmp_path: Path) -> None:
    """Check one line for each target that cannot be followed, and a status that tells whose fault it is."""
    with running(c_program("asks", 80_000), tmp_path) as target:
        for arguments, expected in (
            ([str(target.pid)], 2),
            ([str(target.pid), "valloc"], 2),
            ([str(target.pid), "malloc", "--block=0x10"], 2),
            ([str(target.pid), "malloc", "--grows", "--min=1M"], 2),
            (["999999999", "malloc"], 4),
        ):
            done = gdbheap("catch", *arguments)
            assert (done.returncode, len(done.stderr.splitlines())) == (expected, 1), done.stderr


@pytest.mark.parametrize("words", [("growth", "--duration=1s"), ("catch", "malloc", "--min=1M")])
def test_a_filter_of_one_thread(words: tuple[str, ...], tmp_path: Path) -> None:
    """Check that a process is left alone if only one of its threads has a seccomp filter."""
    noun, *rest = words
    with running(c_program("filtered_thread"), tmp_path) as process:
        done = gdbheap(noun, str(process.pid), *rest)
        assert done.returncode == 3 and "one of its threads runs under a seccomp filter" in done.stderr, done
        assert process.process.poll() is None


@pytest.mark.parametrize("words", [("growth", "--duration=1s"), ("catch", "malloc", "--min=1M", "--seccomp")])
def test_redirected_calls_of_one_thread(words: tuple[str, ...], tmp_path: Path) -> None:
    """Check that a process is left alone if one of its threads redirects its system calls."""
    if tuple(map(int, os.uname().release.split(".")[:2])) < (6, 4):
        pytest.skip("before Linux 6.4, no tracer can see which threads redirect their system calls")
    noun, *rest = words
    with running(c_program("dispatched_thread"), tmp_path) as process:
        done = gdbheap(noun, str(process.pid), *rest)
        assert done.returncode == 5 and "one of its threads redirects its system calls" in done.stderr, done
        assert process.process.poll() is None
