"""``gdbheap stats FILE``, compared with a program's own counts, with valgrind, and with a plain computation."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import subprocess
import xml.etree.ElementTree as ElementTree
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from reference import call_log
from reference.call_log import CALLOC, FREE, MALLOC, MEMALIGN, REALLOC, Call
from support.programs import GDBHEAP, PATIENCE, build, gdbheap, plain_environment, whole_lists
from support.recorded import finished, recorder_environment
from support.recorded import recorded as resting

NAMES = {MALLOC: "malloc", CALLOC: "calloc", REALLOC: "realloc", MEMALIGN: "memalign", FREE: "free"}
POINTS = 2048


def stats(log: Path, *options: str) -> dict[str, Any]:
    """Return the statistics of a complete log."""
    done = gdbheap("calls", str(log), "--json", *whole_lists(*options), *options)
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def recorded(words: list[str], folder: Path) -> tuple[Path, dict[int, list[Call]]]:
    """Run a program to its end. Return its log, and the calls of each process as the plain reader has them."""
    log = folder / "calls.log"
    parts = Path(f"{log}.parts")
    parts.mkdir(0o700)
    subprocess.run(words, check=True, env={**os.environ, **recorder_environment(parts)}, stdout=subprocess.DEVNULL)
    files = call_log.files_of(parts)
    calls = {pid: list(call_log.calls_of(data)) for (pid, _began), data in files.items()}
    done = gdbheap("trace", "--finish", "-o", str(log))
    assert done.returncode == 0, done.stderr
    return log, calls


@dataclass
class Naive:
    """The sums over calls, computed with plain lists."""

    live: dict[int, tuple[int, int, int, int]] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)
    given: list[tuple[int, int]] = field(default_factory=list)
    lives: list[int] = field(default_factory=list)
    times: list[int] = field(default_factory=list)
    # Blocks, bytes and usable bytes after each call.
    course: list[tuple[int, int, int]] = field(default_factory=lambda: [(0, 0, 0)])
    lower: int = 0
    # The last call of each thread that allocated.
    fresh: dict[int, int] = field(default_factory=dict)

    def take(self, number: int, call: Call) -> None:
        """Add the next call; calls are numbered from 1."""
        self.counts[NAMES[call.kind]] += 1
        fresh = self.fresh.pop(call.tid, 0)
        if call.kind == FREE:
            self.release(call.result, number, call.time, fresh)
        elif call.kind == REALLOC and call.old in self.live and call.result:
            size, usable, born, time = self.live.pop(call.old)
            self.counts["grown"] += call.size > size
            self.counts["shrunk"] += call.size < size
            self.counts["moved"] += call.old != call.result
            self.counts["copied"] += min(size, call.size) if call.old != call.result else 0
            self.lower += max(0, call.size - size)
            self.put(call, born, time)
        elif call.kind == REALLOC and call.old in self.live:
            if call.size:
                self.counts["failed"] += 1
            else:
                self.release(call.old, number, call.time, fresh)
        else:
            self.counts["unknown"] += call.kind == REALLOC and call.old != 0
            self.counts["failed"] += call.result == 0 and call.size != 0
            if call.result:
                self.counts["allocated"] += 1
                self.lower += call.size
                self.fresh[call.tid] = number
                self.put(call, number, call.time)
        last = self.course[-1]
        self.course.append(last if call.result == 0 and call.old == 0 else self.sums())

    def put(self, call: Call, born: int, time: int) -> None:
        """Record that a block has this size from now on."""
        self.counts["unseen"] += call.result in self.live
        self.live[call.result] = (call.size, call.usable, born, time)
        self.given.append((call.size, call.usable))

    def release(self, address: int, number: int, time: int, fresh: int) -> None:
        """Remove a block."""
        if address not in self.live:
            self.counts["unknown" if address else "nothing"] += 1
            return
        size, _usable, born, began = self.live.pop(address)
        self.lives.append(number - born - 1)
        self.times.append(time - began)
        self.counts["temporary"] += born == fresh
        self.counts["temporary bytes"] += size if born == fresh else 0

    def sums(self) -> tuple[int, int, int]:
        """Blocks, bytes and usable bytes in use."""
        blocks = self.live.values()
        return len(blocks), sum(block[0] for block in blocks), sum(block[1] for block in blocks)


def quantile(values: list[int], tenths: int) -> int:
    """Return the smallest value that is not exceeded by ``tenths`` tenths of the values."""
    return sorted(values)[-(-len(values) * tenths // 10) - 1]


def assert_equal(answer: dict[str, Any], calls: list[Call]) -> None:
    """Fail if the answer differs from the sums over the calls."""
    naive = Naive()
    for number, call in enumerate(calls, 1):
        naive.take(number, call)
    counts, found = naive.counts, answer["calls"]
    assert {name: found[name] for name in NAMES.values()} == {name: counts[name] for name in NAMES.values()}
    assert found["all"] == len(calls) and answer["threads"] == len({call.tid for call in calls})
    assert answer["not_released"] == counts["unseen"]
    for name in ("failed", "nothing", "unknown", "allocated"):
        assert answer[name] == counts[name], name
    assert answer["resized"] == {
        name: counts["grown" if name == "made_larger" else name]
        for name in ("made_larger", "shrunk", "moved", "copied")
    }
    assert answer["temporary"] == {"count": counts["temporary"], "bytes": counts["temporary bytes"]}
    asked, usable = (sum(column) for column in zip(*naive.given))
    assert answer["requested"] == {"calls": len(naive.given), "bytes": asked, "usable": usable}
    assert answer["cumulated"] == {"upper": asked, "lower": naive.lower}
    assert tuple(answer["live"].values()) == naive.sums()
    for name, column in (("peak", 1), ("most_blocks", 0)):
        highest = max(naive.course, key=lambda sums: sums[column])
        moment = answer[name]
        assert (moment["count"], moment["bytes"], moment["usable"]) == highest
        assert moment["call"] == naive.course.index(highest)
        assert moment["seconds"] == pytest.approx((calls[moment["call"] - 1].time - calls[0].time) / 1e9)
    assert answer["allocated"] == len(naive.lives) + answer["not_released"] + answer["live"]["count"]
    assert_lives(answer["lifetimes"], naive)
    moments = sorted({call.time for call in calls})
    apart = (moments[-1] - moments[0]) / 1e9 / (len(moments) - 1) if len(moments) > 1 else None
    assert answer["lifetimes"]["tick"] == pytest.approx(apart)
    assert_sizes(sorted(answer["sizes"], key=lambda row: row["from"]), naive)
    assert_course(answer["curve"], naive)


def assert_lives(lives: dict[str, Any], naive: Naive) -> None:
    """Check that quantiles are too high by at most the stated error, and exact below 256."""
    assert (lives["released"], lives["within_a_call"]) == (len(naive.lives), naive.lives.count(0))
    for unit, values, scale in (("in_calls", naive.lives, 1), ("in_seconds", naive.times, 1e9)):
        assert lives[unit]["longest"] == pytest.approx(max(values) / scale)
        for key, tenths in (("median", 5), ("p90", 9)):
            exact, found = quantile(values, tenths), lives[unit][key] * scale
            assert exact - 0.5 <= found <= exact * (1 + lives["inaccuracy"]) + 0.5, (unit, key)
            assert found == pytest.approx(exact) or exact >= 256
    for span in lives["by_calls"]:
        assert span["blocks"] == sum(span["from_calls"] <= life < span["to_calls"] for life in naive.lives)
    assert sum(span["blocks"] for span in lives["by_calls"]) == len(naive.lives)


def assert_sizes(rows: list[dict[str, int]], naive: Naive) -> None:
    """Check that each row has the calls of its sizes, and that no size is missing."""
    left = [size for size, *_rest in naive.live.values()]
    assert all(one["to"] <= two["from"] for one, two in zip(rows, rows[1:]))
    for row in rows:
        mine = [size for size, _usable in naive.given if row["from"] <= size < row["to"]]
        still = [size for size in left if row["from"] <= size < row["to"]]
        wanted = {"calls": len(mine), "bytes": sum(mine), "live_blocks": len(still), "live_bytes": sum(still)}
        assert row == {"from": row["from"], "to": row["to"], **wanted}
        assert row["to"] - row["from"] == (
            16 if row["to"] <= 32768 else 32768 if row["to"] <= 64 << 20 else row["from"]
        )
    assert sum(row["calls"] for row in rows) == len(naive.given)


def assert_course(curve: dict[str, list[dict[str, float]]], naive: Naive) -> None:
    """Check that each point belongs to its call, and has the maximum since the previous point."""
    course = naive.course
    for points in curve.values():
        calls = [int(point["call"]) for point in points]
        assert 0 < len(points) <= POINTS and calls == sorted(set(calls)) and calls[-1] == len(course) - 1
        assert [point["seconds"] for point in points] == sorted(point["seconds"] for point in points)
        for before, call, point in zip([0, *calls], calls, points):
            assert (point["count"], point["bytes"]) == course[call][:2]
            assert point["most"] == max(sums[1] for sums in course[before : call + 1])
    ends = [point["call"] for point in curve["over_calls"]]
    steps = {int(two - one) for one, two in zip(ends, ends[1:-1])}
    assert len(steps) <= 1 and all(step & (step - 1) == 0 for step in steps)


def test_the_last_block(tmp_path: Path) -> None:
    """Check the usable bytes of a block after which there is no other call, and that is larger than usual, because the
    rest of its chunk was too small for another chunk."""
    program, log = tmp_path / "last", tmp_path / "calls.log"
    source = "#include <malloc.h>\n#include <stdio.h>\n#include <stdlib.h>\n#include <unistd.h>\nint main(void) {"
    source += "char text[30], *one = malloc(2000), *volatile two = malloc(16); free(one);"
    source += "size_t n = malloc_usable_size(malloc(1984)) + malloc_usable_size(two);"
    (tmp_path / "last.c").write_text(source + 'return write(1, text, sprintf(text, "%zu", n)) <= 0; }')
    subprocess.run(["cc", "-O0", "-o", str(program), str(tmp_path / "last.c")], check=True)
    done = gdbheap("trace", "-o", str(log), "--", str(program))
    assert done.returncode == 0, done.stderr
    assert stats(log)["requested"]["usable"] - int(done.stdout) == 2008
    assert int(done.stdout) == 24 + 2008


def test_a_program_that_counts(rng: random.Random, tmp_path: Path) -> None:
    words = [str(build("tallies")), str(rng.getrandbits(30)), str(rng.randint(1000, 30000))]
    log = tmp_path / "calls.log"
    done = gdbheap("trace", "-o", str(log), "--", *words)
    assert done.returncode == 0, done.stderr
    own, answer = json.loads(done.stdout), stats(log)
    calls, lives = answer["calls"], answer["lifetimes"]
    assert calls["all"] == int(words[2])
    for name in NAMES.values():
        assert calls[name] == own[name], name
    assert (answer["live"]["count"], answer["live"]["bytes"]) == (own["blocks"], own["bytes"])
    assert (answer["peak"]["bytes"], answer["peak"]["call"]) == (own["most_bytes"], own["most_call"])
    assert answer["most_blocks"]["count"] == own["most_blocks"]
    assert answer["cumulated"] == {"upper": own["upper"], "lower": own["lower"]}
    assert answer["requested"]["usable"] == own["usable"] and answer["resized"]["moved"] == own["moved"]
    assert (lives["released"], lives["within_a_call"]) == (own["released"], own["zero"])
    # There is one thread, so its next call is the next of all. A block from realloc does not count as freed by the next
    # call.
    assert answer["temporary"]["count"] == own["zero"]
    for key, name in (("median", "half"), ("p90", "ninety")):
        assert own[name] <= lives["in_calls"][key] <= own[name] * (1 + lives["inaccuracy"])
    other = json.loads(subprocess.run(words, capture_output=True, text=True, check=True).stdout)
    assert {**other, "moved": 0, "usable": 0} == {**own, "moved": 0, "usable": 0}


def test_valgrind(rng: random.Random, tmp_path: Path) -> None:
    """Check the requested and the remaining bytes against memcheck, and the peak against DHAT."""
    valgrind = shutil.which("valgrind")
    if valgrind is None:
        pytest.skip("no valgrind")
    words = [str(build("tallies")), str(rng.getrandbits(30)), str(rng.randint(5000, 20000))]
    log, _calls = recorded(words, tmp_path)
    answer = stats(log)

    def said(*options: str) -> str:
        command = [valgrind or "", *options, *words]
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, env=plain_environment())
        return done.stderr.replace(",", "")

    text = said("--run-libc-freeres=no", "--leak-check=no")
    left = re.search(r"in use at exit: (\d+) bytes in (\d+) blocks", text)
    total = re.search(r"total heap usage: (\d+) allocs (\d+) frees (\d+) bytes", text)
    assert left is not None and total is not None, text
    assert (answer["live"]["bytes"], answer["live"]["count"]) == (int(left[1]), int(left[2]))
    resized = answer["requested"]["calls"] - answer["allocated"]
    gone = answer["lifetimes"]["released"] + resized
    assert [answer["requested"]["calls"], gone, answer["cumulated"]["upper"]] == [int(part) for part in total.groups()]
    text = said("--tool=dhat", f"--dhat-out-file={tmp_path / 'dhat'}")
    most = re.search(r"At t-gmax: (\d+) bytes in (\d+) blocks", text)
    assert most is not None, text
    assert (answer["peak"]["bytes"], answer["peak"]["count"]) == (int(most[1]), int(most[2]))


@pytest.mark.parametrize(("threads", "forks"), [(1, 0), (4, 2)])
def test_a_plain_computation(threads: int, forks: int, rng: random.Random, tmp_path: Path) -> None:
    numbers = [threads, rng.randint(1000, 3000), forks, rng.getrandbits(30)]
    log, processes = recorded([str(build("call_table")), *map(str, numbers), str(tmp_path / "table")], tmp_path)
    assert len(processes) == 1 + forks
    for pid, calls in processes.items():
        answer = stats(log, f"--process={pid}")
        assert answer["pid"] == pid and answer["processes"] == 1 + forks
        assert_equal(answer, calls)
    most = max(processes, key=lambda pid: len(processes[pid]))
    assert threads == 1 or stats(log)["pid"] == most


def test_a_log_that_was_cut_off(rng: random.Random, tmp_path: Path) -> None:
    """Check that a log that was cut off is read up to its last complete stage, with status 1."""
    log, processes = recorded(
        [str(build("call_table")), "1", "90000", "0", str(rng.getrandbits(30)), str(tmp_path / "t")], tmp_path
    )
    (calls,) = processes.values()
    data = log.read_bytes()
    log.write_bytes(data[: rng.randint(len(data) // 2, len(data) - 100)])
    done = gdbheap("calls", str(log), "--json")
    answer = json.loads(done.stdout)
    assert done.returncode == 1 and not answer["is_whole"]
    assert 0 < answer["calls"]["all"] < len(calls)
    asked = sum(call.size for call in calls[: answer["calls"]["all"]] if call.result and call.kind != FREE)
    assert answer["cumulated"]["upper"] == asked
    assert "was cut off" in gdbheap("calls", str(log)).stdout
    log.write_bytes(data[: rng.randint(20, 60)])
    done = gdbheap("calls", str(log))
    assert done.returncode == 2 and done.stderr.endswith("has no complete record: it is damaged, or cut off\n")


def test_damage_ends_it(rng: random.Random, tmp_path: Path) -> None:
    """Check that a damaged byte anywhere in a log leads to an answer up to that place, or to one line."""
    words = [str(build("call_table")), "2", "2000", "0", str(rng.getrandbits(30)), str(tmp_path / "table")]
    log, _calls = recorded(words, tmp_path)
    data = log.read_bytes()
    for _ in range(20):
        changed = bytearray(data)
        for _ in range(rng.randint(1, 4)):
            changed[rng.randrange(16, len(data))] = rng.randrange(256)
        log.write_bytes(changed)
        done = gdbheap("calls", str(log), "--json")
        assert done.returncode in (0, 1, 2) and "fault of gdbheap" not in done.stderr
        assert done.stderr.count("\n") == (done.returncode == 2), done.stderr


def test_picture(rng: random.Random, tmp_path: Path) -> None:
    """Check that the picture has four well-formed panels, the peak's bytes in words, and no markup from the log."""
    words = [str(build("tallies")), str(rng.getrandbits(30)), "5000"]
    (tmp_path / "<b>").mkdir()
    strange = tmp_path / "<b>" / "a&b"
    shutil.copy(words[0], strange)
    log, _calls = recorded([str(strange), *words[1:]], tmp_path)
    picture = tmp_path / "live.svg"
    done = gdbheap("calls", str(log), f"--svg={picture}")
    assert done.returncode == 0 and f"The picture is in {picture}." in done.stdout
    root = ElementTree.parse(picture).getroot()
    space = "{http://www.w3.org/2000/svg}"
    lines = [path.get("d", "") for path in root.iter(f"{space}path") if path.get("class") == "line"]
    assert len(lines) == 4 and all(line.startswith("M90 ") for line in lines)
    height = float(root.get("height", "0"))
    for line in lines:
        numbers = [float(number) for number in re.findall(r"[-\d.]+", line)]
        assert all(0 <= number <= max(height, 960) for number in numbers)
    told = root.find(f"{space}title")
    assert told is not None and told.text is not None and "a&b" in told.text and "At most" in told.text
    refused = gdbheap("calls", str(log), "--svg=/nonexistent/a.svg")
    assert refused.returncode == 2 and "cannot be written" in refused.stderr


def test_text(rng: random.Random, tmp_path: Path) -> None:
    """Check that the tables add up to the JSON figures, and that --top cuts the sizes and states how many are left
    out."""
    words = [str(build("tallies")), str(rng.getrandbits(30)), "8000"]
    log, _calls = recorded(words, tmp_path)
    answer, text = stats(log), gdbheap("calls", str(log), "--top=3", "--sort=bytes", "--bytes").stdout
    rows = sorted(answer["sizes"], key=lambda row: -row["bytes"])
    assert f"{len(rows) - 3:,} more" in text
    totals = [line.split() for line in text.splitlines() if line.split()[:1] == ["total"]]
    assert totals[0] == ["total", "8,000", "100.0"]
    requested, live = answer["requested"], answer["live"]
    figures = (requested["calls"], requested["bytes"], live["count"], live["bytes"])
    assert totals[1] == ["total", *(f"{figure:,}" for figure in figures)]
    assert totals[2] == ["total", f"{answer['lifetimes']['released']:,}", "100.0"]
    largest = next(line for line in text.splitlines() if line.split()[:1] == [f"{rows[0]['from']:,}"])
    assert f"{rows[0]['bytes']:,}" in largest


def test_logs_and_processes(tmp_path: Path) -> None:
    """Check that a log is analysed, and that other files are refused in one line.

    If a log is given to a command about a process or a core, the message names the command that reads logs.
    """
    log, _calls = recorded([str(build("tallies")), "1", "100"], tmp_path)
    assert stats(log)["command"] == "gdbheap calls"
    (tmp_path / "other").write_text("gdbheap calls 2\n")
    for words, reason in (
        (["calls", str(tmp_path / "other")], "other"),
        (["calls", str(os.getpid())], "No such file"),
        (["calls", str(log), str(log)], "unrecognized arguments"),
        (["calls", str(log), "--process=1"], "no process 1"),
        (["calls", str(log), "--seccomp"], "--seccomp"),
        (["stats", str(log)], f"'gdbheap calls {log}'"),
        (["holes", str(log)], f"'gdbheap calls {log}'"),
    ):
        refused = gdbheap(*words)
        assert refused.returncode in (2, 4) and reason in refused.stderr, refused.stderr
        assert refused.stderr.count("\n") == 1
    assert "Usage: gdbheap calls FILE" in gdbheap("calls", "--help").stdout


def test_no_calls(tmp_path: Path) -> None:
    """Check a log whose process made no calls."""
    log = tmp_path / "calls.log"
    who = {"pid": 7, "began": 1, "exe": "/x", "malloc": "", "words": ["x"], "environment": {}, "parent": None}
    frames = [(b"PROC", json.dumps(who).encode()), (b"DONE", b'{"lost": 3}')]
    packed = [kind + (0).to_bytes(4, "little") + len(body).to_bytes(8, "little") + body for kind, body in frames]
    log.write_bytes(b"gdbheap calls 1\n" + b"".join(packed))
    answer = stats(log)
    assert answer["calls"]["all"] == 0 and answer["lost"] == 3 and answer["lifetimes"]["in_calls"]["median"] is None
    done = gdbheap("calls", str(log), f"--svg={tmp_path / 'a.svg'}")
    assert done.returncode == 0 and "3 calls could not be recorded" in done.stdout
    ElementTree.parse(tmp_path / "a.svg")


def test_growth(rng: random.Random, tmp_path: Path) -> None:
    """Check the calls that raise the break, as the program itself sees it, and the bytes by which the hole is too
    small."""
    hole, more = 8 * rng.randint(8000, 12000), rng.randint(17, 900)
    log = tmp_path / "calls.log"
    words = [str(build("short_holes")), str(hole), str(more), str(rng.getrandbits(30)), "6000"]
    # Without this, the top has more bytes than the second request needs.
    done = subprocess.run(
        [str(GDBHEAP), "trace", "-o", str(log), "--", *words], capture_output=True, text=True, timeout=PATIENCE,
        env={**plain_environment(), "GLIBC_TUNABLES": "glibc.malloc.top_pad=0"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    own = [[int(part) for part in line.split()] for line in done.stdout.splitlines()]
    found = stats(log, "--growth=all")["arena_growths"]
    assert [[row["call"], row["bytes"]] for row in found] == own and len(own) > 2
    second = next(row for row in found if row["call"] == 4)
    chunk, largest = ((size + 8 + 15) & ~15 for size in (hole + more, hole))
    assert second == {
        "call": 4, "asked": hole + more, "alignment": 0, "bytes": second["bytes"], "chunk": chunk, "arena": 0,
        "largest": largest, "short_by": chunk - largest, "has_looked": True, "is_new": False, "frames": None,
    }  # fmt: skip
    assert all(row["has_looked"] and (row["short_by"] is None or row["short_by"] > 0) for row in found)
    some = stats(log, "--growth=2")["arena_growths"]
    assert [row["bytes"] for row in some] == [row["bytes"] for row in found]
    looked = sorted(row["bytes"] for row in some if row["has_looked"])
    assert looked == sorted(row["bytes"] for row in found)[-2:]
    text = gdbheap("calls", str(log), "--growth=all").stdout
    assert f"{chunk - largest:,}" in text and f"{len(own):,} calls made an arena larger" in text


def test_a_growth_has_the_stack_of_its_call(rng: random.Random, tmp_path: Path) -> None:
    """Check that a growth has the stack of its call, in the document and in the table."""
    log = tmp_path / "calls.log"
    words = [str(build("short_holes")), "80000", "100", str(rng.getrandbits(30)), "2000"]
    command = [str(GDBHEAP), "trace", "-o", str(log), "--stacks=1", "--", *words]
    assert subprocess.run(command, capture_output=True, timeout=PATIENCE, env=plain_environment()).returncode == 0
    found = stats(log, "--growth=3")["arena_growths"]
    assert sum(row["frames"] is not None for row in found) == 3
    for row in found:
        assert row["has_looked"] == (row["frames"] is not None)
        assert row["frames"] is None or "main" in [frame["name"] for frame in row["frames"]]
    assert "called by" in gdbheap("calls", str(log), "--growth=3").stdout


def test_growth_of_threads_arenas(rng: random.Random, tmp_path: Path) -> None:
    """Check the growth of threads' arenas, each by its size, because no memory was returned."""
    numbers = [4, rng.getrandbits(30), 2000, 200, 20000, 0]
    log = tmp_path / "calls.log"
    command = [str(build("recorder")), *map(str, numbers), str(tmp_path / "table")]
    with resting(command, log, {"GLIBC_TUNABLES": "glibc.malloc.trim_threshold=1000000000"}) as target:
        arenas = json.loads(gdbheap("arenas", str(target.pid), "--json").stdout)["rows"]
        finished(target, log)
    found = stats(log, "--growth=all")["arena_growths"]
    sums: Counter[int] = Counter()
    for row in found:
        sums[row["arena"]] += row["bytes"]
    assert sums[0] == next(arena["system"] for arena in arenas if arena["index"] == 0)
    assert sorted(sums.values()) == sorted(arena["system"] for arena in arenas)
    assert sum(row["is_new"] for row in found) == len(arenas) - 1 > 0
