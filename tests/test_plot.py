"""``gdbheap plot`` of series with known values, and ``gdbheap top`` of waiting programs."""

from __future__ import annotations

import builtins
import json
import os
import pty
import random
import re
import select
import signal
import subprocess
import sys
import termios
import time
import xml.etree.ElementTree
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from support.programs import GDBHEAP, PATIENCE, c_program, gdbheap, running, status

from gdbheap.errors import Unsupported, UsageError
from gdbheap.report.formats import plot
from gdbheap.report.words.record import duration_text
from gdbheap.sampling.curves import Curve, curves_of, joined
from gdbheap.sampling.sample import ArenaSample, ClassSample, MallocSample, PoolsSample, Sample, Series, SeriesEvent
from gdbheap.sampling.sampled_process import SampledProcess, SampleTime
from gdbheap.sampling.series import SeriesFile, read

START = 1_700_000_000.0


def written(path: Path, rng: random.Random, pids: int = 2, count: int = 40) -> Series:
    """Write a made-up series of some processes; return it."""
    found = Series(START, "1", 1.0)
    for pid in range(1, pids + 1):
        target = {"exe": f"/bin/prog<{pid}>&"}
        found.events.append(SeriesEvent(START, 0.0, "start", pid, target=target))
        for second in range(count):
            in_use = rng.randrange(1 << 20, 1 << 26) if rng.random() < 0.7 else None
            arena = ArenaSample(4096, rng.randrange(1 << 26, 1 << 28), 1 << 28, None, in_use)
            rss = rng.randrange(1 << 20, 1 << 28) * pid
            found.samples.append(Sample(pid, START + second, float(second), rss, malloc=MallocSample([arena])))
        found.events.append(SeriesEvent(START + 5, 5.0, "snapshot", pid, path="a.heap"))
    out = SeriesFile(str(path), found)
    for row in [*found.events, *found.samples]:
        out.add(row)
    out.close()
    return found


class Page(HTMLParser):
    """The tags of a page, and the cells of its table."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.links: list[str] = []
        self.cells: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note a tag, and its link."""
        self.tags.append(tag)
        self.links += [value or "" for name, value in attrs if name in ("src", "href", "xlink:href")]

    def handle_data(self, data: str) -> None:
        """Note a cell."""
        if self.tags and self.tags[-1] == "td" and data.strip():
            self.cells.append(data)


@pytest.mark.parametrize("name", ["series.csv", "series.jsonl"])
def test_pictures(name: str, rng: random.Random, tmp_path: Path) -> None:
    """Check that each form is complete, has the format of its ending, and states the series' first, last and highest
    values."""
    pytest.importorskip("matplotlib", reason="the extra gdbheap[plot] is not installed")
    series = written(tmp_path / name, rng)
    for form in ("svg", "png", "html"):
        path = tmp_path / f"out.{form}"
        done = gdbheap("plot", str(tmp_path / name), "-o", str(path), "--json")
        assert done.returncode == 0, done.stderr
        answer = json.loads(done.stdout)
        assert answer["command"] == "gdbheap plot" and answer["size"] == path.stat().st_size
        for row in answer["rows"]:
            own = [sample for sample in series.samples if sample.pid == row["pid"]]
            values = {
                "rss": [sample.rss for sample in own],
                "system": [sample.malloc.system for sample in own if sample.malloc],
                "in_use": [sample.malloc.in_use for sample in own if sample.malloc],
            }[row["figure"]]
            known = [value for value in values if value is not None]
            assert (row["first"], row["last"], row["peak"]) == (known[0], known[-1], max(known))
            assert row["samples"] == len(known)
            peak = next(sample.time for sample, value in zip(own, values) if value == max(known))
            assert row["peak_time"] == pytest.approx(peak)
    assert (tmp_path / "out.png").read_bytes().startswith(b"\x89PNG")
    svg = (tmp_path / "out.svg").read_text()
    root = xml.etree.ElementTree.fromstring(svg)
    assert root.get("role") == "img" and "process 1, prog<1>&" in "".join(root.itertext())
    text = (tmp_path / "out.html").read_text()
    page = Page(text)
    assert "script" not in page.tags and all(link.startswith("#") for link in page.links)
    assert (
        page.tags.count("svg") == 1
        and "prefers-color-scheme: dark" in text
        and "://" not in re.sub(r'xmlns[^"]*"[^"]*"', "", text).split("<body>")[0]
    )
    assert "1 prog<1>&" in page.cells and not [
        colour for colour in plot.PALETTE.values() if colour in text.split("</head>")[1]
    ]


@pytest.mark.parametrize("name", ["series.csv", "series.jsonl"])
def test_report_of_series(name: str, rng: random.Random, tmp_path: Path) -> None:
    """Check that gdbheap report recognises a series by its first line, and that its page is that of gdbheap plot."""
    pytest.importorskip("matplotlib", reason="the extra gdbheap[plot] is not installed")
    paths = [str(tmp_path / f"{number}{name}") for number in range(2)]
    for path in paths:
        written(Path(path), rng, count=3)
    done = gdbheap("report", *paths, "-o", str(tmp_path / "report.html"), "--json")
    assert done.returncode == 0, done.stderr
    assert (json.loads(done.stdout)["about"], json.loads(done.stdout)["missing"]) == ("series", [])
    drawn = json.loads(gdbheap("plot", *paths, "-o", str(tmp_path / "plot.html"), "--json").stdout)
    page, same = (Page((tmp_path / f"{one}.html").read_text()) for one in ("report", "plot"))
    assert page.cells == same.cells and len(page.cells) >= len(drawn["rows"]) and "svg" in page.tags
    (tmp_path / "empty.jsonl").write_text("{}\n")
    assert gdbheap("report", str(tmp_path / "empty.jsonl"), "-o", str(tmp_path / "x.html")).returncode == 4


def test_many_processes(rng: random.Random, tmp_path: Path) -> None:
    """Check that the largest are drawn, and that all are in the table."""
    pytest.importorskip("matplotlib", reason="the extra gdbheap[plot] is not installed")
    written(tmp_path / "a.csv", rng, pids=15, count=3)
    done = gdbheap("plot", str(tmp_path / "a.csv"), "-o", str(tmp_path / "a.svg"), "--json")
    answer = json.loads(done.stdout)
    assert answer["not_drawn"] == 3 and len({row["pid"] for row in answer["rows"]}) == 15


def test_without_matplotlib(rng: random.Random, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that one line says what to install."""
    written(tmp_path / "a.csv", rng, count=3)
    real = builtins.__import__

    def without(name: str, *rest: Any) -> Any:
        if name.split(".")[0] == "matplotlib":
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(Unsupported, match=r"pip install 'gdbheap\[plot\]'"):
        plot.picture(curves_of(read(str(tmp_path / "a.csv")), "a.csv"), "svg")


def test_parts_of_a_recording(rng: random.Random) -> None:
    """Check that the curves of one process in several files are one curve, whatever their order, and that an id in
    another boot, or of a later start, is another process."""

    def part(begin: float, count: int, boot: str = "boot", start: int = 7) -> Series:
        found = Series(begin, "1", 1.0)
        found.events.append(
            SeriesEvent(begin, 0.0, "start", 5, target={"exe": "/x", "boot_id": boot, "start_time": start})
        )
        for second in range(count):
            found.samples.append(Sample(5, begin + second, float(second), int(begin + second)))
        return found

    counts = [rng.randrange(1, 9) for _ in range(4)]
    begins = [START + sum(counts[:number]) for number in range(4)]
    parts = [(f"{number}.csv", part(begin, count)) for number, (begin, count) in enumerate(zip(begins, counts))]
    # An uncompressed file may still be there beside the compressed one.
    rng.shuffle(parts := [*parts, ("1.csv.gz", parts[1][1])])
    others = [("a.csv", part(START, 3, boot="other")), ("b.csv", part(START, 2, start=8))]
    rest = [one for file, series in others for one in curves_of(series, file)]
    found = joined([one for file, series in parts for one in curves_of(series, file)] + rest)
    curve = found[0].curves["rss"]
    assert curve.times == [START + second for second in range(sum(counts))]
    assert curve.values == [int(time) for time in curve.times] and found[0].file == "0.csv"
    assert found[1:] == rest


def test_plot_refuses(rng: random.Random, tmp_path: Path) -> None:
    """Check the refusals of wrong names, foreign files and empty series."""
    written(tmp_path / "a.csv", rng, count=3)
    written(tmp_path / "empty.csv", rng, pids=0)
    (tmp_path / "foreign.csv").write_text("a,b\n")
    for words, said in [
        (["a.csv"], "where to"), (["a.csv", "-o", "a.pdf"], "where to"), (["-o", "a.svg"], "which file"),
        (["foreign.csv", "-o", "a.svg"], "not a gdbheap recording"), (["empty.csv", "-o", "a.svg"], "has no samples"),
        (["none.csv", "-o", "a.svg"], "cannot be read"), (["a.csv", "-o", "/nowhere/a.svg"], "cannot be written"),
    ]:  # fmt: skip
        done = gdbheap("plot", *words, cwd=tmp_path)
        assert done.returncode == 2 and said in done.stderr and done.stderr.count("\n") == 1, done.stderr


def test_values_between(rng: random.Random) -> None:
    """Check that a curve is straight between two known values."""
    times = sorted(rng.sample(range(100), 6))
    curve = Curve("rss", [float(time) for time in times], [time * 3 + 7 for time in times])
    asked = [rng.uniform(times[0], times[-1]) for _ in range(20)] + [float(time) for time in times]
    for time_, value in zip(sorted(asked), curve.at(sorted(asked))):
        assert abs(value - (time_ * 3 + 7)) < 1e-6
    assert list(Curve("rss", [1.0], [5]).at([1.0])) == [5]


def test_durations() -> None:
    """Check that the two largest units are shown."""
    said = {0.04: "0.0 s", 59.94: "59.9 s", 200: "3 min 20 s", 7260: "2 h 1 min", 90000: "1 d 1 h"}
    assert {seconds: duration_text(seconds) for seconds in said} == said


def test_top_of_a_program(tmp_path: Path) -> None:
    """Check the kernel's and malloc's figures, in JSON and in tables one after the other, without a terminal."""
    with running(c_program("steps", 3, 1), tmp_path) as target:
        target.go_on("big 30000000")
        answer = json.loads(gdbheap("top", str(target.pid), "--json").stdout)
        (row,) = answer["rows"]
        assert answer["command"] == "gdbheap top" and row["pid"] == target.pid and row["program"] == "steps"
        assert abs(row["rss"] - 1024 * status(target.pid, "VmRSS")) < 1 << 20 and row["swapped"] == 0
        assert 30_000_000 <= row["in_use"] <= row["system"] and answer["total"]["processes"] == 1
        done = gdbheap("top", str(target.pid), "--count=3", "--every=50ms")
        assert done.returncode == 0 and done.stderr == "" and done.stdout.count("  steps ") == 3
        assert gdbheap("top", "999999999").returncode == 4
        for word in ("--count=0", "--count=x", "--every=0"):
            assert gdbheap("top", str(target.pid), word).returncode == 2
        line = f"{GDBHEAP} top {target.pid} --every=10ms | head -n 3"
        done = subprocess.run(["sh", "-c", line], capture_output=True, text=True, timeout=PATIENCE)
        assert done.stdout.count("\n") == 3 and done.stderr == ""


def test_top_of_ones_own(tmp_path: Path) -> None:
    """Check that without a process all processes of the user are listed, largest first, and that the status tells if
    one cannot be read, such as another test's that is traced."""
    with running(c_program("steps", 3, 0), tmp_path) as target:
        target.go_on("big 300000000")
        done = gdbheap("top", "--json")
        answer = json.loads(done.stdout)
        sizes = [row["rss"] for row in answer["rows"]]
        assert done.returncode == bool(answer["refused"]) == bool(answer["left_out"])
        assert sizes == sorted(sizes, reverse=True)
        assert target.pid in [row["pid"] for row in answer["rows"]]


TRACER = "import ctypes, sys; print(ctypes.CDLL(None).ptrace(0x4206, int(sys.argv[1]), 0, 0), flush=True); input()"


def test_traced_meanwhile(tmp_path: Path) -> None:
    """Check that a process that another program begins to trace after it was listed has the kernel's figures."""
    with running(c_program("steps", 3, 0), tmp_path) as target:
        watched = SampledProcess(target.pid)
        command = [sys.executable, "-c", TRACER, str(target.pid)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as tracer:
            assert tracer.stdout is not None and tracer.stdout.readline() == "0\n"
            usage = watched.usage()
            assert watched.look(usage) == "start" and "already traced" in (watched.refused or "")
            assert watched.sample(SampleTime(time.time(), 0.0), usage).rss == usage.rss


@pytest.mark.parametrize("end", ["q", signal.SIGINT, signal.SIGTERM])
def test_terminal_is_restored(end: str | int, tmp_path: Path) -> None:
    """Check that the terminal is restored, however the command ends."""
    try:
        leader, follower = pty.openpty()
    except OSError as error:
        pytest.skip(f"no terminal can be made here: {error}")
    with running(c_program("steps", 3, 0), tmp_path) as target:
        before = termios.tcgetattr(follower)
        environment = {**os.environ, "TERM": "xterm", "GDBHEAP_DEBUG": "1"}
        process = subprocess.Popen(
            [str(GDBHEAP), "top", str(target.pid), "--every=100ms"], stdin=follower, stdout=follower,
            stderr=subprocess.PIPE, env=environment, start_new_session=True,
        )  # fmt: skip
        said = until(leader, b"steps", process)
        assert b"\x1b[" in said and termios.tcgetattr(follower) != before
        if isinstance(end, str):
            os.write(leader, end.encode())
        else:
            process.send_signal(end)
        said = drained(leader, process)
        assert process.wait(PATIENCE) == 0 and termios.tcgetattr(follower) == before
        assert b"\x1b[?1049l" in said and process.stderr is not None and process.stderr.read() == b""
    os.close(leader)
    os.close(follower)


def until(descriptor: int, wanted: bytes, process: subprocess.Popen[bytes]) -> bytes:
    """Return a terminal's output up to some bytes."""
    said, deadline = b"", time.monotonic() + PATIENCE
    while wanted not in said:
        assert time.monotonic() < deadline and process.poll() is None, said
        if select.select([descriptor], [], [], 0.1)[0]:
            said += os.read(descriptor, 65536)
    return said


def drained(descriptor: int, process: subprocess.Popen[bytes]) -> bytes:
    """Return a terminal's output until the process has ended."""
    said = b""
    while process.poll() is None or select.select([descriptor], [], [], 0)[0]:
        if select.select([descriptor], [], [], 0.1)[0]:
            said += os.read(descriptor, 65536)
    return said


@pytest.mark.parametrize("form", ["csv", "jsonl"])
def test_numbers_that_no_process_has(form: str, rng: random.Random, tmp_path: Path) -> None:
    """Check that a forged number, or one whose sum is too large, is refused in one line with its place."""
    huge = rng.randrange(1 << 64, 10**20)
    halves = [ArenaSample(4096 * place, (1 << 62) - rng.randrange(1 << 20), 0) for place in range(2)]
    classes = [ClassSample(rng.randrange(1 << 33, 1 << 34), 1, rng.randrange(1 << 33, 1 << 34), 0)]
    samples: list[dict[str, Any]] = [
        {"rss": huge},
        {"rss": 1 << 63},
        {"rss": 1, "malloc": MallocSample([ArenaSample(4096, huge, 0)])},
        {"rss": 1, "malloc": MallocSample(halves)},
        {"rss": 1, "pools": PoolsSample("pymalloc", 1, 1, 1, 1, classes)},
    ]
    for place, forged in enumerate(samples):
        path = tmp_path / f"{place}.{form}"
        series = SeriesFile(str(path), Series(START, "1", 1.0))
        series.add(Sample(7, START, 0.0, **forged))
        series.close()
        with pytest.raises(UsageError, match=r"is damaged in line \d: \d+ (has more than 64 bits|is larger than)"):
            read(str(path))
