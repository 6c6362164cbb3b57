"""Texts and lists of files with extreme lengths: each command answers or refuses, and does so soon.

Each attack runs in its own process with limited processor time, since sre handles no signal inside a match.
"""

from __future__ import annotations

import json
import resource
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from subprocess import run
from typing import Any

import pytest
from support.programs import PATIENCE, gdbheap, whole_snapshot

from gdbheap.documents import MAX_TEXT
from gdbheap.errors import UsageError
from gdbheap.sampling.sample import Sample, Series
from gdbheap.sampling.series import SeriesFile
from gdbheap.sampling.series import read as read_series
from gdbheap.snapshots.file import ENTRY, read
from gdbheap.snapshots.snapshot import MAX_HOLDERS
from gdbheap.tracing.log import LogWriter, RecordedProcess, read_log

LONG, AT_ONCE = 1_000_000, 20
SECONDS = 30
# All patterns of the product, on texts for which a pattern that begins anywhere, or repeats itself, could take hours.
PATTERNS = """
import importlib, pkgutil, re, gdbheap
PARTS = ["1", ".", ",", "1,", "[", "['", "<", "<a", "<a> as ", "SeriesWrap<", "a", "_", "A", " ", "\\t", "a.", "1."]
PARTS += [": ", "/", "-", "\\n", "\\\\\\\\", "a b ", "(", "core::ptr::drop_in_place<", "> [", " - ", "sys.modules['a."]
TEXTS = [part * (65536 // len(part)) + end for part in PARTS for end in ("", "!")]
TEXTS += ["SeriesWrap<" * 1000 + "a" * 10000]
found = set()
for module in pkgutil.walk_packages(gdbheap.__path__, "gdbheap."):
    try:
        names = vars(importlib.import_module(module.name))
    except ImportError:
        continue
    found |= {(value, f"{module.name}.{name}") for name, value in names.items() if isinstance(value, re.Pattern)}
for pattern, name in found:
    print("after", name, flush=True)
    for text in TEXTS:
        subject = text if isinstance(pattern.pattern, str) else text.encode()
        pattern.search(subject), pattern.match(subject), pattern.sub(subject[:0], subject)
print(len(found), "patterns")
"""


def limited() -> None:
    """Limit a child's processor time and write no core."""
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def test_patterns() -> None:
    """Check that no pattern takes a time that grows faster than the text."""
    words = [sys.executable, "-I", "-c", PATTERNS]
    done = run(words, capture_output=True, text=True, timeout=PATIENCE, preexec_fn=limited)
    *_, last = done.stdout.splitlines()
    assert done.returncode == 0, last + done.stderr[-500:]
    assert int(last.split()[0]) > 40


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a snapshot of a Python process, with all optional parts."""
    return whole_snapshot(tmp_path_factory.mktemp("long"))


def document_of(path: Path) -> Any:
    """Return the document of a snapshot."""
    with zipfile.ZipFile(path) as archive:
        return json.loads(archive.read(ENTRY))


def forged(source: Path, path: Path, document: Any) -> Path:
    """Write a copy of a snapshot with this document."""
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(path, "w") as new:
        for name in old.namelist():
            new.writestr(name, json.dumps(document) if name == ENTRY else old.read(name))
    return path


def texts(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield the place of each text of a document, the first of each list."""
    for key in list(value)[:1] if isinstance(value, list) and value else list(value) if isinstance(value, dict) else []:
        key = 0 if isinstance(value, list) else key
        if isinstance(value[key], str):
            yield value, key
        else:
            yield from texts(value[key])


def forgeable(document: Any) -> list[tuple[Any, Any]]:
    """Return the places of the texts that may have any value."""
    return [(value, key) for value, key in texts(document) if key not in ("format", "kind", "id")]


def answered(good: Path, path: Path) -> None:
    """Check that each command answers about a snapshot, or refuses it in one line."""
    for words in (["diff", str(good), str(path)], ["report", str(path), "-o", f"{path}.html"]):
        done = gdbheap(*words, preexec_fn=limited)
        assert done.returncode == 0 or done.stderr.count("\n") == 1, done.stderr[-2000:]
        assert done.returncode in (0, 2) and "fault of gdbheap" not in done.stderr, done.stderr[-2000:]


@pytest.mark.parametrize("part", ["1", ".", "["])
def test_texts_of_a_snapshot(part: str, good: Path, tmp_path: Path) -> None:
    """Check very long texts, as many at once as a document has room for."""
    count = len(forgeable(document_of(good)))
    assert count > 30
    for number in range(0, count, AT_ONCE):
        document = document_of(good)
        for value, key in forgeable(document)[number : number + AT_ONCE]:
            value[key] += part * LONG
        path = forged(good, tmp_path / f"{number}.heap", document)
        answered(good, path)


def longest(value: Any) -> int:
    """Return the length of the longest text of a record."""
    if isinstance(value, str):
        return len(value)
    inside = value if isinstance(value, (list, tuple)) else list(getattr(value, "__dict__", {}).values())
    inside = [*value, *value.values()] if isinstance(value, dict) else inside
    return max(map(longest, inside), default=0)


def test_texts_are_cut(good: Path, tmp_path: Path) -> None:
    """Check that texts are cut when a file is read, wherever they are, including keys and values of unknown types."""
    document = document_of(good)
    for value, key in list(texts(document)):
        if key != "format":
            value[key] = value[key] + "x" * 5000
    document["target"].update({"y" * 5000: ["z" * 5000, {"z" * 5000: "z" * 5000}]})
    document["target"]["exe"] = "x" * 5000
    assert longest(read(str(forged(good, tmp_path / "cut.heap", document))).snapshot) == MAX_TEXT


def test_lists_of_a_snapshot(good: Path, tmp_path: Path) -> None:
    """Check that at most as many rows are read as gdbheap writes, since rows are compared with each other."""
    document = document_of(good)
    row = document["holders"][0]
    document["holders"] = [{**row, "path": f"v.{number}", "address": 16 * number} for number in range(3_000)]
    path = forged(good, tmp_path / "many.heap", document)
    assert len(read(str(path)).snapshot.holders or []) == MAX_HOLDERS
    answered(good, path)


SAMPLE = Sample(1, 10.0, 1.0, 4096)


@pytest.mark.parametrize("field", ["time", "offset", "stopped", "every"])
@pytest.mark.parametrize("number", [1e300, -1e300, -1.0, 253_402_300_799.0])
def test_times_of_a_series(field: str, number: float, tmp_path: Path) -> None:
    """Check that impossible times are refused with the line named."""
    header = Series(1.0, "1", number if field == "every" else 1.0)
    for name in ("a.jsonl", "a.csv"):
        file = SeriesFile(str(tmp_path / name), header)
        file.add(SAMPLE)
        file.add(Sample(**{**vars(SAMPLE), **({field: number} if field != "every" else {})}))
        file.close()
        done = gdbheap("plot", str(tmp_path / name), "-o", str(tmp_path / "p.svg"))
        assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
        assert "is damaged in line" in done.stderr, done.stderr


def test_the_last_moments_are_drawn(tmp_path: Path) -> None:
    """Check that a sample with the last possible time is read and drawn."""
    file = SeriesFile(str(tmp_path / "a.jsonl"), Series(1.0, "1", 1.0))
    for time in (0.0, 32_503_679_999.0):
        file.add(Sample(**{**vars(SAMPLE), "time": time}))
    file.close()
    assert len(read_series(file.path).samples) == 2
    done = gdbheap("plot", file.path, "-o", str(tmp_path / "p.svg"))
    assert done.returncode == 0 or "matplotlib" in done.stderr, done.stderr


WHO = RecordedProcess(1234, 1, "/bin/true", "", ["true"])


@pytest.mark.parametrize(
    ("field", "value"),
    [("pid", -1), ("pid", 1 << 31), ("began", -1), ("began", 1 << 63), ("stacks", -1), ("parent", [1, 2]),
     ("parent", [1, 2, 1 << 63]), ("lost", -1), ("lost", "9" * 5000), ("lost", 1e9), ("status", "1"), ("pid", 1.5)],
)  # fmt: skip
def test_numbers_of_a_log(field: str, value: Any, tmp_path: Path) -> None:
    """Check impossible numbers, and records with too few of them."""
    path = str(tmp_path / "a.calls")
    writer = LogWriter(path)
    writer.process(0, RecordedProcess(**{**vars(WHO), **({field: value} if field in vars(WHO) else {})}))
    writer.process_end(0, value if field == "lost" else 0)
    writer.end(value if field == "status" else 0)
    writer.close()
    with pytest.raises(UsageError, match="it is damaged"):
        read_log(path)


def test_numbers_that_logs_have(tmp_path: Path) -> None:
    """Check a command that a signal ended, and arguments as long as the kernel allows."""
    path = str(tmp_path / "a.calls")
    writer = LogWriter(path)
    writer.process(0, RecordedProcess(**{**vars(WHO), "words": ["x" * 100_000], "parent": (1, 2, 3)}))
    writer.process_end(0, 5)
    writer.end(-9)
    writer.close()
    log = read_log(path)
    (process,) = log.processes
    assert (log.status, process.lost, process.who.parent) == (-9, 5, (1, 2, 3))
    assert longest(process.who) == MAX_TEXT
