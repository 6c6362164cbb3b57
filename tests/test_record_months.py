"""A recording for months: a restart continues the file, files have a limited size and age, old ones are compressed."""

from __future__ import annotations

import dataclasses
import gzip
import os
import random
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from support.busy import wait_for
from support.programs import GDBHEAP, PATIENCE, gdbheap

from gdbheap.errors import GdbheapError, UsageError
from gdbheap.files import hold_folder_of
from gdbheap.files.folders import HeldFolder, hold
from gdbheap.sampling.rotation import Rotation, SeriesFiles, remove_oldest
from gdbheap.sampling.sample import Sample, Series, SeriesEvent
from gdbheap.sampling.series import SeriesFile, read

START = 1.7e9


def sample(offset: float, rss: int) -> Sample:
    """Return a sample of a process."""
    return Sample(7, START + offset, offset, rss)


@pytest.mark.parametrize("name", ["series.csv", "series.jsonl"])
def test_a_restart_continues(tmp_path: Path, rng: random.Random, name: str) -> None:
    """Check that earlier rows stay, except one that a kill cut, and that offsets continue from the first start."""
    path, pause = str(tmp_path / name), rng.randrange(10, 10000)
    before = SeriesFile(path, Series(START, "1", 1.0))
    before.add(sample(0, 1))
    before.add(sample(1, 2))
    before.close()
    with open(path, "ab") as stream:
        stream.write(b"cut by a k")
    after = SeriesFile(path, Series(START + pause, "1", 1.0), replace=False)
    assert after.began == START
    after.add(sample(0, 3))
    after.add(SeriesEvent(START + pause + 1, 1.0, "close", reason="ended"))
    after.close()
    found = read(path)
    assert [(row.offset, row.rss) for row in found.samples] == [(0, 1), (1, 2), (pause, 3)] and not found.cut
    assert [row.offset for row in found.events] == [pause + 1] and found.time == START
    assert after.size == os.path.getsize(path)


def test_what_is_no_recording_is_kept(tmp_path: Path) -> None:
    """Check that a file that is no recording, or a recording, is replaced only with ``replace``."""
    path = tmp_path / "series.csv"
    path.write_text("something,else\n")
    with pytest.raises(UsageError, match="is not a recording: "):
        SeriesFile(str(path), Series(START, "1", 1.0), replace=False)
    assert path.read_text() == "something,else\n"
    for _ in range(2):
        file = SeriesFile(str(path), Series(START, "1", 1.0), replace=True)
        file.add(sample(0, 1))
        file.close()
        assert len(read(str(path)).samples) == 1


@pytest.mark.parametrize("name", ["series.csv", "series.jsonl"])
def test_a_recording_of_another_version_is_kept(tmp_path: Path, name: str) -> None:
    """Check that a recording with other columns, of a newer schema, or in the other format is not replaced without
    --replace, but a file that a kill cut in its first line is."""
    path, other = tmp_path / name, tmp_path / ("series.jsonl" if name == "series.csv" else "series.csv")
    for one in (path, other):
        file = SeriesFile(str(one), Series(START, "1", 1.0))
        file.add(sample(0, 1))
        file.close()
    text = path.read_text()
    for changed in (text.replace("rss,", "rss,new,", 1), text.replace("rss,pss,", "rss,", 1), other.read_text()):
        newer = re.sub(r'("+schema"+: ?)1\b', r"\g<1>7", text) if changed == text else changed
        path.write_text(newer)
        with pytest.raises(UsageError, match="--replace"):
            SeriesFile(str(path), Series(START, "1", 1.0), replace=False)
        assert path.read_text() == newer
        SeriesFile(str(path), Series(START, "1", 1.0), replace=True).close()
    path.write_text(text[:20])
    SeriesFile(str(path), Series(START, "1", 1.0), replace=False).close()
    assert not read(str(path)).samples


def test_one_writer(tmp_path: Path) -> None:
    """Check that a second recording into the same file, which would mix rows, is refused."""
    path = str(tmp_path / "series.csv")
    first = SeriesFile(path, Series(START, "1", 1.0))
    with pytest.raises(UsageError, match="another gdbheap record"):
        SeriesFile(path, Series(START, "1", 1.0), replace=False)
    first.close()
    SeriesFile(path, Series(START, "1", 1.0), replace=False).close()


@pytest.mark.parametrize("name", ["series.csv", "series.jsonl"])
def test_files_have_a_size(tmp_path: Path, rng: random.Random, name: str) -> None:
    """Check that no row is lost, that each file can be read alone and all together are one recording, and that older
    files are removed."""
    path, size, count = str(tmp_path / name), rng.randrange(1500, 2500), rng.randrange(200, 400)
    first = SeriesEvent(START, 0.0, "start", 7, target={"kind": "process", "pid": 7})
    out = SeriesFiles(path, Series(START, "1", 1.0), Rotation(size), lambda: [first])
    rows = [sample(float(number), number + 1) for number in range(count)]
    for row in rows:
        out.add(row)
    out.close()
    assert out.rows == count
    older = [entry for entry in tmp_path.iterdir() if entry.name != name]
    assert len(older) > 3 and all(entry.suffix == ".gz" for entry in older)
    parts = [read(str(entry)) for entry in [*older, Path(path)]]
    assert sorted(row.rss for part in parts for row in part.samples) == [row.rss for row in rows]
    assert all(event.kind == "start" for part in parts[1:] for event in part.events[:1])
    assert all(len(gzip.decompress(entry.read_bytes())) < size + 1000 for entry in older)
    out = SeriesFiles(path, Series(START, "1", 1.0), Rotation(1, keep=2), list, replace=True)
    for row in rows[:5]:
        out.add(row)
    out.close()
    assert len([entry for entry in tmp_path.iterdir() if entry.name != name]) == 2


def test_no_older_file_is_replaced(tmp_path: Path, rng: random.Random) -> None:
    """Check that the name of an older file is free, also of a file that was not compressed, of a compressed one and of
    a link; and that links and folders with such names are not removed."""
    path, planted = str(tmp_path / "series.csv"), {}
    names = [f"series.20231114T221320Z{number}.csv" for number in ("", "-2", "-3", "-4")]
    for name, ending in zip(names, rng.sample(["", ".gz", "link", "folder"], 4)):
        place = tmp_path / f"{name}{ending if ending == '.gz' else ''}"
        if ending == "link":
            place.symlink_to("/nonexistent")
        elif ending == "folder":
            place.mkdir()
        else:
            place.write_text(planted.setdefault(place.name, str(rng.random())))
    out = SeriesFiles(path, Series(START, "1", 1.0), Rotation(1), list)
    out.add(sample(0, 1))
    out.add(sample(1, 2))
    out.close()
    assert {name: (tmp_path / name).read_text() for name in planted} == planted
    # The first row is written behind a file that has only its header.
    newer = [str(tmp_path / f"series.20231114T221320Z-{number}.csv.gz") for number in (5, 6)]
    assert [[row.rss for row in read(one).samples] for one in newer] == [[], [1]]
    with hold(path, str(tmp_path)) as folder:
        remove_oldest(folder, "series.csv", 0)
    left = [entry for entry in tmp_path.iterdir() if entry.name != "series.csv"]
    assert len(left) == 2 and not any(entry.is_file() for entry in left)


def test_the_newest_are_kept(tmp_path: Path, rng: random.Random) -> None:
    """Check that of several files of one second those with the highest numbers are kept, and of two seconds the later
    ones."""
    count, keep = rng.randrange(10, 14), rng.randrange(1, 9)
    numbers = ["", *(f"-{number}" for number in range(2, count))]
    names = [f"series.20231114T22132{second}Z{number}.csv.gz" for second in (0, 1) for number in numbers]
    for name in rng.sample(names, len(names)):
        (tmp_path / name).write_text("")
    with hold(str(tmp_path / "series.csv"), str(tmp_path)) as folder:
        remove_oldest(folder, "series.csv", keep)
    assert set(os.listdir(tmp_path)) == set(names[-keep:])


def test_a_folder_that_is_swapped(tmp_path: Path) -> None:
    """Check that files are written, compressed and removed in the folder that was opened first, even if its name now
    leads to another folder; and that the next recording is refused if its name now belongs to another file.
    """
    first, other = tmp_path / "first", tmp_path / "other"
    first.mkdir()
    other.mkdir()
    for day in range(1, 5):
        (other / f"series.2020010{day}T000000Z.csv.gz").write_text("of another recording")
    before = sorted(os.listdir(other))
    (tmp_path / "place").symlink_to(first)
    out = SeriesFiles(str(tmp_path / "place" / "series.csv"), Series(START, "1", 1.0), Rotation(1, keep=1), list)
    (tmp_path / "place").unlink()
    (tmp_path / "place").symlink_to(other)
    for number in range(4):
        out.add(sample(number, number))
    out.close()
    assert sorted(os.listdir(other)) == before and len(os.listdir(first)) == 2
    out = SeriesFiles(str(first / "series.csv"), Series(START, "1", 1.0), Rotation(1), list)
    (first / "series.csv").unlink()
    (first / "series.csv").write_text("of another program")
    with pytest.raises(UsageError, match="replaced it"):
        out.add(sample(0, 1))
    out.close()
    assert (first / "series.csv").read_text() == "of another program"


def test_a_file_that_is_removed(tmp_path: Path) -> None:
    """Check that a recording ends once its file or its folder is removed: its rows would be lost."""
    folder = tmp_path / "folder"
    folder.mkdir()
    out = SeriesFiles(str(folder / "series.csv"), Series(START, "1", 1.0), Rotation(), list)
    out.add(sample(0, 1))
    shutil.rmtree(folder)
    with pytest.raises(GdbheapError, match="was removed"):
        out.add(sample(1, 2))
    out.close()
    with subprocess.Popen(["sleep", "1000"]) as process:
        path = tmp_path / "series.jsonl"
        command = [str(GDBHEAP), "record", str(process.pid), "--every=100ms", "-o", str(path)]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as recorder:
            wait_for(path.exists, "it does not begin")
            path.unlink()
            assert recorder.wait(PATIENCE) == 1 and recorder.stderr is not None
            assert recorder.stderr.read().count("\n") == 1
        process.kill()


def test_an_older_file_that_is_swapped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that the recording itself is compressed, even if its name is now a link, and that the link stays."""
    secret, path = tmp_path / "secret", str(tmp_path / "series.csv")
    secret.write_text("only root reads this")
    tidy = SeriesFiles._tidy

    def swapped(self: SeriesFiles, folder: HeldFolder, older: str, descriptor: int) -> None:
        (tmp_path / f"{older}.link").symlink_to(secret)
        (tmp_path / f"{older}.link").rename(tmp_path / older)
        tidy(self, folder, older, descriptor)

    monkeypatch.setattr(SeriesFiles, "_tidy", swapped)
    out = SeriesFiles(path, Series(START, "1", 1.0), Rotation(1), list)
    out.add(sample(0, 1))
    out.add(sample(1, 2))
    out.close()
    packed = list(tmp_path.glob("*.gz"))
    assert sorted([row.rss for row in read(str(one)).samples] for one in packed) == [[], [1]]
    assert all((tmp_path / one.stem).is_symlink() for one in packed) and secret.read_text() == "only root reads this"


def test_a_file_that_is_being_compressed_counts_once(tmp_path: Path) -> None:
    """Check that an older file which is there under both of its names is one of the files to keep."""
    names = ["20300101T000000Z.csv.gz", "20300102T000000Z.csv.gz", "20300103T000000Z.csv", "20300103T000000Z.csv.gz"]
    for name in names:
        (tmp_path / f"series.{name}").touch()
    with hold_folder_of(str(tmp_path / "series.csv"))[0] as folder:
        remove_oldest(folder, "series.csv", 2)
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"series.{name}" for name in names[1:]]


@pytest.mark.skipif(os.geteuid() != 0, reason="files of other users need root")
def test_files_of_others_do_not_count(tmp_path: Path) -> None:
    """Check that another user's older files are not removed, and do not count towards the number of files to keep."""
    path = str(tmp_path / "series.csv")
    for day in range(1, 6):
        planted = tmp_path / f"series.2030010{day}T000000Z.csv.gz"
        planted.write_text("")
        os.chown(planted, 65534, 65534)
    out = SeriesFiles(path, Series(START, "1", 1.0), Rotation(1, keep=2), list)
    for number in range(4):
        out.add(sample(number, number))
    out.close()
    assert len(list(tmp_path.glob("series.2030*"))) == 5 and len(list(tmp_path.glob("series.2023*"))) == 2


def test_files_have_an_age(tmp_path: Path, rng: random.Random) -> None:
    """Check that the age of a file counts from its first row, also after a restart."""
    path, series = str(tmp_path / "series.csv"), Series(START, "1", 1.0)
    SeriesFile(path, series).close()
    out = SeriesFiles(path, dataclasses.replace(series, time=START + 5), Rotation(seconds=1e12), list)
    out.add(sample(0, 1))
    out.close()
    assert [entry.name for entry in tmp_path.iterdir()] == ["series.csv"]
    out = SeriesFiles(path, dataclasses.replace(series, time=START + 5), Rotation(seconds=60), list)
    out.add(sample(0, 2))
    out.close()
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["series.20231114T221320Z.csv.gz", "series.csv"]
    assert [row.rss for row in read(path).samples] == [2]


def test_the_command(tmp_path: Path) -> None:
    """Check that a recording that is started twice has both runs, with --replace only the second one, and that wrong
    uses of --rotate and --keep are refused."""
    path = tmp_path / "series.csv"
    with subprocess.Popen(["sleep", "1000"]) as process:
        words = ("record", str(process.pid), "--every=1s", "--duration=1ms", "-o", str(path))
        for options, counts in (((), 1), ((), 2), (("--replace",), 1), (("--rotate=1", "--keep=1"), 1)):
            done = gdbheap(*words, *options)
            assert done.returncode == 0, done
            assert len([event for event in read(str(path)).events if event.kind == "close"]) == counts
        process.kill()
    assert len(list(tmp_path.glob("series.*.csv.gz"))) == 1
    done = gdbheap("record", "1", "-o", "-", "--rotate=1M")
    assert done.returncode == 2 and "--rotate" in done.stderr
    done = gdbheap("record", "1", "-o", str(path), "--keep=1")
    assert done.returncode == 2 and "--keep needs" in done.stderr


def test_a_day_takes_five_megabytes(tmp_path: Path, rng: random.Random) -> None:
    """Check that 86,400 rows of a busy program, all of whose figures change, take less than 5 MB compressed."""
    rows = "".join(row_of(rng, number) for number in range(2000))
    assert len(gzip.compress(rows.encode())) * 86400 / 2000 < 5e6 < len(rows) * 86400 / 2000


def row_of(rng: random.Random, number: int) -> str:
    """Return a line of a sample with the columns of a Python program with one arena."""
    rss = 100_000_000 + 4096 * rng.randrange(1000)
    figures = [rss, "", rss - 9_000_000, 9_000_000, 0, 0, 40_000_000 + 4096 * rng.randrange(100), number, 3, 4, ""]
    arena = f"140737352354944:{rss // 2}:{rss}:131072:{rss // 2 - rng.randrange(1 << 16)}:4096:0"
    sums = [rss // 2, "", "", 2_000_000, 3, 2_500_000, 12, 12 << 20, 700, 3, "", "", arena, "pymalloc", "", "", ""]
    return ",".join(map(str, [START + number, float(number), 4711, "", *figures, *sums])) + "\n"
