"""gdbheap replay: addresses of blocks against the original program; pages against the kernel; other allocators'
memory against the program run with them."""

from __future__ import annotations

import json
import os
import random
import shlex
import shutil
import signal
import subprocess
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from support.programs import GDBHEAP, PATIENCE, build, interpreter_of, plain_environment, running, status
from support.recorded import finished, recorded, waiting

from gdbheap.errors import UsageError
from gdbheap.tracing.log import BY_TIME, RecordedProcess
from gdbheap.tracing.recorder_files import ORDER
from gdbheap.tracing.replay_settings import found_allocators, recorded_setting

# glibc's heaps of threads begin at a multiple of this, and a replay's break at the same distance from one.
ALIGNED = 64 << 20
Chunks = Counter[tuple[Any, ...]]


def gdbheap(*words: object) -> dict[str, Any]:
    """Return the document of a command that answers."""
    command = [str(GDBHEAP), *map(str, words), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, env=plain_environment())
    assert done.returncode == 0, done.stderr + done.stdout[:2000]
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def chunks(pid: int, from_first: bool = False) -> Chunks:
    """Return all chunks of all arenas: arena, place, size, state; for mmapped ones only their number.

    The place is the address modulo ALIGNED, or (``from_first``) the distance from the first chunk.
    """
    found = gdbheap("chunks", pid, "--top=all")["rows"]
    placed = [row for row in found if row["state"] != "mmapped"]
    first = min(row["address"] for row in placed) if from_first else 0
    listed = Counter((row["arena"], (row["address"] - first) % ALIGNED, row["size"], row["state"]) for row in placed)
    return listed + Counter({("mmapped",): len(found) - len(placed)})


def assert_same(program: Chunks, replay: Chunks) -> None:
    """Fail with the first chunks that differ."""
    missing, other = program - replay, replay - program
    assert not missing and not other, (
        f"{sum(missing.values())} of {sum(program.values())} are elsewhere: {sorted(missing, key=str)[:5]},"
        f" {sorted(other, key=str)[:5]}"
    )


@pytest.mark.parametrize("threads", [1, 4])
@pytest.mark.parametrize("alignments", [0, 4], ids=["small alignments", "large alignments"])
def test_every_chunk_is_where_the_program_had_it(
    threads: int, alignments: int, rng: random.Random, tmp_path: Path
) -> None:
    numbers = [threads, rng.randrange(1 << 30), 60000, 2000, rng.choice([20000, 100000, 1000000]), alignments]
    log = tmp_path / "calls.log"
    # The kernel chooses the start of a separately mapped block with a large alignment, so there is none.
    tunables = {"GLIBC_TUNABLES": f"glibc.malloc.mmap_threshold={32 << 20}"} if alignments else {}
    with recorded([str(build("recorder")), *map(str, numbers), str(tmp_path / "table")], log, tunables) as target:
        program = chunks(target.pid)
        finished(target, log)
    assert len(program) > 1000
    with waiting(log, "end") as (pid, _calls):
        assert_same(program, chunks(pid))


def test_calls_in_the_order_of_the_clock_give_a_heap_that_is_alike(rng: random.Random, tmp_path: Path) -> None:
    numbers = [4, rng.randrange(1 << 30), 60000, 2000, 20000, 0]
    log, environment = tmp_path / "calls.log", {ORDER: BY_TIME}
    with recorded([str(build("recorder")), *map(str, numbers), str(tmp_path / "table")], log, environment) as target:
        arenas = gdbheap("arenas", target.pid)["total"]
        finished(target, log)
    answer = gdbheap("replay", log)
    (run,) = answer["rows"]
    assert (answer["order"], answer["threads"], run["failed"]) == (BY_TIME, 4, 0)
    # Clocks of two processors may differ by some hundred ticks.
    assert answer["unknown"] <= 0.001 * answer["calls"]
    assert abs(run["in_use"] - arenas["in_use"]) <= 0.01 * arenas["in_use"]
    assert abs(run["system"] - arenas["system"]) <= 0.1 * arenas["system"]


def test_python_without_its_own_allocator(rng: random.Random, tmp_path: Path) -> None:
    source = tmp_path / "program.py"
    source.write_text(
        "import json, re, signal, sys, threading\n"
        "documents = [json.loads(json.dumps({str(i): list(range(i % 50))})) for i in range(int(sys.argv[1]))]\n"
        # The threads live on: the moment at which an ending thread empties its cache is not recorded.
        "def work():\n    compiled.append([re.compile('a' * k + 'b') for k in range(100)])\n"
        "    done.release()\n    signal.pause()\n"
        "compiled = []\ndone = threading.Semaphore(0)\n"
        "[threading.Thread(target=work, daemon=True).start() for _ in range(3)]\n[done.acquire() for _ in range(3)]\n"
        "del documents[::2]\nsignal.pause()\n"
    )
    log = tmp_path / "calls.log"
    command = [interpreter_of("stripped"), str(source), str(rng.randint(3000, 6000))]
    with recorded(command, log, {"PYTHONMALLOC": "malloc"}) as target:
        program, heap = chunks(target.pid), heap_rss(target.pid)
        finished(target, log)
    assert len(program) > 10000
    with waiting(log, "end", "--fill") as (pid, _calls):
        assert_same(program, chunks(pid))
        assert abs(heap_rss(pid) - heap) <= 0.05 * heap


def test_sqlite(rng: random.Random, tmp_path: Path) -> None:
    sqlite = shutil.which("sqlite3")
    if sqlite is None:
        pytest.skip("no sqlite3")
    log = tmp_path / "calls.log"
    rows = rng.randint(10000, 20000)
    with recorded([sqlite, ":memory:"], log) as target:
        for line in (
            "create table t(a, b);",
            f"with recursive c(x) as (select 1 union all select x + 1 from c where x < {rows})"
            " insert into t select x, hex(randomblob(abs(random()) % 300)) from c;",
            "create index i on t(b);",
            "delete from t where a % 3 = 0;",
        ):
            target.go_on(line)
        program, heap = chunks(target.pid), heap_rss(target.pid)
        finished(target, log)
    assert heap > 1 << 20
    with waiting(log, "end", "--fill") as (pid, _calls):
        assert_same(program, chunks(pid))
        assert abs(heap_rss(pid) - heap) <= 0.05 * heap


def heap_rss(pid: int) -> int:
    """Return the resident bytes of the break's heap, as the kernel counts them."""
    parts = Path(f"/proc/{pid}/smaps").read_text().split("[heap]")
    return 1024 * sum(int(part.split("Rss:")[1].split()[0]) for part in parts[1:])


def test_a_stop_in_the_middle(rng: random.Random, tmp_path: Path) -> None:
    """Check that a replay of more calls stops where a program that ends earlier has made the same calls."""
    log, seed = tmp_path / "calls.log", rng.randrange(1 << 30)
    few, more = (
        [str(build("recorder")), "1", str(seed), str(count), "500", "100000", "0", str(tmp_path / "table")]
        for count in (15000, 30000)
    )
    with recorded(few, tmp_path / "few.log") as target:
        program = chunks(target.pid, from_first=True)
        finished(target, tmp_path / "few.log")
    calls = gdbheap("replay", tmp_path / "few.log")["calls"]
    with recorded(more, log) as target:
        finished(target, log)
    with waiting(log, str(calls)) as (pid, made):
        assert made == calls
        assert_same(program, chunks(pid, from_first=True))


def test_a_replay_that_waits_ends_with_us(tmp_path: Path) -> None:
    log = tmp_path / "calls.log"
    with recorded([str(build("runaway")), "5", "100000", "1000"], log) as target:
        finished(target, log)
    command = [str(GDBHEAP), "replay", str(log), "--stop-at=3"]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as replay:
        assert replay.stderr is not None
        pid = int(replay.stderr.readline().split("process ")[1].split()[0])
        assert Path(f"/proc/{pid}").exists()
        replay.send_signal(signal.SIGKILL)
        replay.wait(PATIENCE)
        deadline = time.monotonic() + PATIENCE
        while _runs(pid) and time.monotonic() < deadline:
            time.sleep(0.02)
        assert not _runs(pid)


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_stop_is_ended_quietly_with_what_there_is(tmp_path: Path) -> None:
    log = tmp_path / "calls.log"
    with recorded([str(build("runaway")), "5", "100000", "1000"], log) as target:
        finished(target, log)
    command = [str(GDBHEAP), "replay", str(log), "--stop-at=3", "--json"]
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as replay:
        assert replay.stderr is not None
        replay.stderr.readline()
        replay.send_signal(signal.SIGINT)
        output, errors = replay.communicate(timeout=PATIENCE)
    answer = json.loads(output)
    assert (replay.returncode, errors, answer["stopped"]) == (0, "", 3)
    assert answer["rows"][0]["peak_rss"] > 0


def _peak(command: list[str], tmp_path: Path, environment: dict[str, str]) -> int:
    """Return the peak of a program's resident memory, by the kernel's count."""
    with running(command, tmp_path, environment) as target:
        return 1024 * status(target.pid, "VmHWM")


def test_what_if_a_runaway_ran_elsewhere(rng: random.Random, tmp_path: Path) -> None:
    """Check buffers that grow between small blocks that stay: glibc's heap grows with each, and with another setting
    it does not. The advice has that effect on the program itself."""
    rounds, size = 80, rng.randrange(900_000, 1_200_000)
    command = [str(build("runaway")), str(rounds), str(size), "16384"]
    log = tmp_path / "calls.log"
    with recorded(command, log) as target:
        finished(target, log)
    answer = gdbheap("replay", log, "--what-if")
    runs = {(run["allocator"], run["tunables"]): run for run in answer["rows"]}
    glibc = runs["glibc", ""]
    assert glibc["peak_rss"] > 0.8 * rounds * size
    assert glibc["at_end"]["hole_bytes"] > 0.8 * rounds * size
    assert answer["peak_bytes"] < 32 << 20
    assert [path for path in found_allocators() if path not in [run["preloaded"] for run in answer["rows"]]] == []
    for name in {run["allocator"] for run in answer["rows"]} & {"jemalloc"}:
        assert runs[name, ""]["most_peak_rss"] < glibc["peak_rss"] / 3
    best = answer["rows"][answer["best"]]
    assert best["most_peak_rss"] < glibc["peak_rss"] / 2
    environment = {"LD_PRELOAD": best["preloaded"] or "", "GLIBC_TUNABLES": best["tunables"]}
    before, after = _peak(command, tmp_path, {}), _peak(command, tmp_path, environment)
    assert after < before / 2
    # The other memory of each is the program's own: code, stack.
    assert abs((before - after) - (glibc["peak_rss"] - best["peak_rss"])) < 0.15 * before


def test_the_line_to_paste_stands_below_the_table(tmp_path: Path) -> None:
    log = tmp_path / "calls.log"
    with recorded([str(build("runaway")), "60", "1000000", "16384"], log) as target:
        finished(target, log)
    command = [str(GDBHEAP), "replay", str(log), "--what-if"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, env=plain_environment())
    line = done.stdout.rstrip().splitlines()[-1].strip()
    assert line.startswith(("GLIBC_TUNABLES=", "LD_PRELOAD=")), done.stdout
    name, _, value = shlex.split(line)[0].partition("=")
    assert name == "GLIBC_TUNABLES" or os.path.exists(value)


def test_a_child_s_heap_is_its_parent_s_and_what_it_did_itself(rng: random.Random, tmp_path: Path) -> None:
    """Check chunk for chunk, over two generations; each child frees blocks of its parents, and allocates."""
    log = tmp_path / "calls.log"
    source = (
        "import os, random, signal, sys\nrandom.seed(int(sys.argv[1]))\n"
        "def work():\n    for _ in range(3000):\n"
        "        kept[random.randrange(500)] = bytes(random.randrange(9000))\n"
        "kept = [bytes(1000 + i) for i in range(500)]\nwork()\n"
        "if os.fork() == 0:\n    work()\n    if os.fork() == 0:\n        work()\n        del kept[::3]\n"
        "    else:\n        del kept[::5]\n"
        "open(f'{sys.argv[2]}/{os.getpid()}', 'w').close()\nsignal.pause()\n"
    )
    command = [interpreter_of("stripped"), "-c", source, str(rng.randrange(1 << 30)), str(tmp_path)]
    with recorded(command, log, {"PYTHONMALLOC": "malloc"}) as target:
        deadline = time.monotonic() + PATIENCE
        while len(pids := [int(path.name) for path in tmp_path.iterdir() if path.name.isdecimal()]) < 3:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        while not all(Path(f"/proc/{pid}/syscall").read_text().startswith("34 ") for pid in pids):
            time.sleep(0.02)
        programs = {pid: chunks(pid) for pid in pids}
        for pid in set(pids) - {target.pid}:
            os.kill(pid, signal.SIGKILL)
        finished(target, log)
    answer = gdbheap("replay", log, f"--process={target.pid}")
    assert (answer["processes"], answer["unknown"], answer["inherited"]) == (3, 0, 0)
    counts = [gdbheap("replay", log, f"--process={pid}") for pid in pids if pid != target.pid]
    assert all(count["unknown"] == 0 and 5000 < count["inherited"] < count["calls"] for count in counts)
    for pid, program in programs.items():
        with waiting(log, "end", f"--process={pid}") as (replayer, _calls):
            assert_same(program, chunks(replayer))


def test_blocks_of_a_parent_are_left_out_and_counted(tmp_path: Path) -> None:
    """Check a child that was made without fork(), although its parent had forked before."""
    log = tmp_path / "calls.log"
    source = (
        "import ctypes, os, signal, sys\nif os.fork() == 0:\n    os._exit(0)\nos.wait()\n"
        "kept = [bytes(1000 + i) for i in range(500)]\n"
        "pid = ctypes.CDLL(None).syscall(56, int(signal.SIGCHLD), 0, 0, 0, 0)\n"
        "if pid == 0:\n    del kept\n    os._exit(0)\nos.waitpid(pid, 0)\n"
        "open(f'{sys.argv[1]}/child{pid}', 'w').close()\nsignal.pause()\n"
    )
    command = [interpreter_of("stripped"), "-c", source, str(tmp_path)]
    with recorded(command, log, {"PYTHONMALLOC": "malloc"}) as target:
        parent = target.pid
        finished(target, log)
    answer = gdbheap("replay", log)
    assert (answer["pid"], answer["unknown"]) == (parent, 0)
    (child,) = (path.name.removeprefix("child") for path in tmp_path.glob("child*"))
    answer = gdbheap("replay", log, f"--process={child}")
    assert answer["unknown"] >= 500 and answer["inherited"] == 0


def test_a_process_that_the_log_lacks(tmp_path: Path) -> None:
    log = tmp_path / "calls.log"
    with recorded([str(build("runaway")), "5", "100000", "1000"], log) as target:
        finished(target, log)
    words = [str(GDBHEAP), "replay", str(log), "--process=1"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1) and str(target.pid) in done.stderr


@pytest.mark.parametrize("option", ["--tunables=arena_maximum=1", "--tunables=arena_max", "--tunables=arena_max=x"])
def test_a_tunable_that_glibc_would_ignore_is_refused(option: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [str(GDBHEAP), "replay", "none.log", option], capture_output=True, text=True, timeout=PATIENCE
    )
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)


def test_a_library_that_is_no_allocator_is_refused(tmp_path: Path) -> None:
    log = tmp_path / "calls.log"
    with recorded([str(build("runaway")), "5", "100000", "1000"], log) as target:
        finished(target, log)
    (tmp_path / "none.so").write_bytes(b"none")
    for library in ("nowhere.so", tmp_path / "none.so"):
        command = [str(GDBHEAP), "replay", str(log), f"--allocator={library}"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1), done.stderr


def test_damaged_logs_are_refused_or_replayed_up_to_there(rng: random.Random, tmp_path: Path) -> None:
    """Check that a log with any bytes gives an answer or one line."""
    log, damaged = tmp_path / "calls.log", tmp_path / "damaged.log"
    with recorded(
        [str(build("recorder")), "2", "1", "3000", "200", "10000", "0", str(tmp_path / "table")], log
    ) as target:
        finished(target, log)
    whole = log.read_bytes()
    for content in (b"", b"none", whole[:10]):
        damaged.write_bytes(content)
        assert _status(damaged) == 2
    for _ in range(12):
        content = bytearray(whole)
        for _ in range(rng.randint(1, 4)):
            content[rng.randrange(len(content))] = rng.randrange(256)
        damaged.write_bytes(bytes(content[: rng.choice([len(content), rng.randrange(len(content))])]))
        assert _status(damaged) in (0, 1, 2)


def _status(log: Path) -> int:
    command = [str(GDBHEAP), "replay", str(log)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    assert "Traceback" not in done.stderr and done.stderr.count("\n") <= 1, done.stderr
    assert bool(done.stdout) is (done.returncode < 2)
    return done.returncode


def test_no_library_because_a_log_names_it(tmp_path: Path) -> None:
    """Check that a library that a log names is loaded only if it is a known allocator that is installed, since a
    loaded library runs; the user may name any. Variables of a log only set malloc."""
    planted = tmp_path / "libjemalloc.so.2"
    planted.write_bytes(b"")
    known = found_allocators()
    environment = {"GLIBC_TUNABLES": "glibc.malloc.arena_max=1:glibc.cpu.x86_shstk=on"}
    for path, library in [("", None), ("/usr/lib/libc.so.6", None), *((path, path) for path in known)]:
        found = recorded_setting(RecordedProcess(1, 1, "/bin/x", path, [], environment))
        assert (found.library, found.tunables) == (library, {"glibc.malloc.arena_max": "1"})
    named = RecordedProcess(1, 1, "/bin/x", str(planted), [])
    with pytest.raises(UsageError, match="does not load a library only because a trace names it"):
        recorded_setting(named)
    assert recorded_setting(named, "glibc").library is None
    assert recorded_setting(named, str(planted)).library == str(planted)
