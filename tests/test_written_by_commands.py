"""What commands write: only what their lines name, with mode 600, and nothing through names that others plant."""

from __future__ import annotations

import os
import re
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.attackers import needs_root, place, planted
from support.programs import GDBHEAP, PATIENCE, Running, c_program, gdbheap, running

from gdbheap.commands.surface.options import Writing
from gdbheap.commands.surface.registry import COMMANDS

VICTIM = b"what must not change\n"


@pytest.fixture
def shared() -> Iterator[Path]:
    """A folder as /tmp, with a file of ours that nobody else may write to."""
    with place(0o1777) as found:
        (found / "victim").write_bytes(VICTIM)
        yield found


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A small program."""
    with running(c_program("steps", 5, 1), tmp_path_factory.mktemp("target")) as found:
        yield found


def lines_of(target: Running, out: Path) -> list[list[str]]:
    """Return lines that write all that is written, into `out`; logs and series come before what reads them."""
    pid, log, series = str(target.pid), str(out / "calls.log"), str(out / "series.csv")
    trees = [f"--{kind}={out}/{kind}" for kind in ("folded", "svg", "speedscope", "pprof")]
    return [
        ["snapshot", pid, str(out / "a.heap"), "--blocks"],
        ["report", pid, "-o", str(out / "report.html")],
        ["heap", pid, *trees],
        ["map", pid, f"--svg={out}/map.svg"],
        ["export", pid, "-o", str(out / "csv"), "--format=csv"],
        ["export", pid, "-o", str(out / "sqlite"), "--format=sqlite"],
        ["export", pid, "-o", str(out / "parts"), "--format=csv", "--partition=host=a,pid"],
        ["record", pid, "-o", series, "--every=10ms", "--duration=30ms", "--snapshot-every=10ms"],
        ["trace", "-o", log, "--stacks=all", "--", sys.executable, "-c", "pass"],
        ["stats", log, f"--svg={out}/stats.svg"],
        ["stacks", log, f"--svg={out}/stacks.svg"],
        ["watch", pid, "--rss=1K", "--heap", f"--output={out}", *(["--core"] if shutil.which("gdb") else [])],
    ]


@pytest.mark.parametrize("mode", [None, 0o640])
def test_modes(mode: int | None, target: Running, tmp_path: Path) -> None:
    """Every file has mode 600, whatever the umask, or the one that was asked for; folders go with them."""
    before = os.umask(0)
    try:
        for line in lines_of(target, tmp_path):
            own = [*line[:1], f"--mode={mode:o}", *line[1:]] if mode else line
            done = gdbheap(*own)
            assert done.returncode == 0, (own, done.stderr)
    finally:
        os.umask(before)
    found = {path: stat.S_IMODE(path.lstat().st_mode) for path in tmp_path.rglob("*")}
    assert {kind for path, kind in found.items() if path.is_file()} == {mode or 0o600}, found
    assert {kind for path, kind in found.items() if path.is_dir()} == {0o750 if mode else 0o700}, found
    kinds = {path.suffix for path in found}
    assert kinds >= {".heap", ".html", ".svg", ".csv", ".sqlite", ".log", ".json"}
    assert (".core" in kinds) == bool(shutil.which("gdb")) and not [name for name in found if "gdbheap-" in name.name]


def test_mode_is_everywhere() -> None:
    """Each command that writes a file has --mode, and no other has; what is no mode of a file is refused."""
    has = {noun for noun, command in COMMANDS.items() if issubclass(command.options, Writing)}
    assert has == {noun for noun, command in COMMANDS.items() if command.writes}
    for text in ("777", "400", "060", "abc", "8", "1600", "0o600", ""):
        assert gdbheap("snapshot", "1", "/nowhere", f"--mode={text}").returncode == 2


@needs_root
def test_told_where(target: Running, tmp_path: Path) -> None:
    """Root, who named no folder, is told where files go."""
    command = [str(GDBHEAP), "watch", str(target.pid), "--rss=1K"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0 and f"files are written to {tmp_path}\n" in done.stderr
    assert [path.suffix for path in tmp_path.iterdir()] == [".heap"]


@needs_root
def test_planted_for_commands(target: Running, shared: Path) -> None:
    """Commands do as the parts that they are made of: one line, status 2, before the process is stopped."""
    pid, victim = str(target.pid), shared / "victim"
    for number, line in enumerate(lines_of(target, shared)):
        if line[0] in ("watch", "stats", "stacks"):
            continue
        outs = [word for word in line if str(shared) in word]
        paths = {word.partition("=")[2] if word.startswith("--") else word for word in outs}
        for path in paths:
            planted(lambda path=path: os.symlink(victim, path))  # type: ignore[misc]
        done = gdbheap(*line)
        assert done.returncode == 2 and done.stderr.count("\n") == 1 and not done.stdout, (number, line, done.stderr)
        for path in paths:
            assert os.path.islink(path)
            os.unlink(path)
    assert victim.read_bytes() == VICTIM and os.listdir(shared) == ["victim"] and pid


MAKING = "open,openat,openat2,creat,rename,renameat,renameat2,link,linkat,symlink,symlinkat,mkdir,mkdirat,truncate"
CALL = re.compile(r"(?:^\d+ +)?(\w+)\((.*)\) += (-?\d+)")
WRITES = re.compile(r"O_WRONLY|O_RDWR|O_CREAT|O_TRUNC|O_APPEND")
QUOTED = re.compile(r'(?:(?:AT_FDCWD|\d+)<([^>]*)>, )?"((?:[^"\\]|\\.)*)"')
ELSEWHERE = re.compile(r"/proc/|/dev/(null|tty|pts/|ptmx|shm/)|.*/__pycache__(/|\Z)|/sys/fs/cgroup/|pipe:|anon_inode:")


def line_for(noun: str, target: Running, out: Path) -> list[str] | None:
    """Return a line that tries a command, and has it write what it can."""
    pid, address = str(target.pid), None
    heap = [line for line in Path(f"/proc/{pid}/maps").read_text().splitlines() if line.endswith("[heap]")]
    address = "0x" + heap[0].split("-")[0] if heap else "0x1000"
    trees = [f"--svg={out}/tree.svg", f"--folded={out}/tree"]
    known = {
        "": [pid, *trees], "snapshot": [pid, f"{out}/a.heap"], "map": [pid, f"--svg={out}/map.svg"],
        "at": [pid, address], "refs": [pid, address], "why": [pid, address], "diff": [f"{out}/given.heap", pid],
        "owners": [pid, *trees], "retained": [pid, *trees], "export": [pid, "-o", f"{out}/tables", "--format=csv"],
        "sql": [pid, "select 1"], "report": [pid, "-o", f"{out}/r.html"],
        "plot": [f"{out}/given.csv", "-o", f"{out}/p.svg"],
        "record": [pid, "-o", f"{out}/b.csv", "--duration=20ms", "--every=10ms"], "trim": [pid],
        "trace": ["-o", f"{out}/b.log", "--", "/bin/true"],
        "watch": [pid, "--rss=1K", "--heap", "--core", f"--output={out}"],
        "growth": [pid, "--duration=0.2"], "catch": [pid, "malloc", "--size=1", "--duration=0.2"],
        "top": [pid, "--count=1"], "ps": [], "doctor": [pid], "processes": [pid], "shell": [pid],
        "stacks": [f"{out}/given.log", *trees], "replay": [f"{out}/given.log", f"--frames={out}/film", "--every=5"],
        "chunks": [pid, "--svg=" + f"{out}/c.svg"],
    }  # fmt: skip
    return [*noun.split(), *known.get(noun, [pid])]


@pytest.fixture(scope="module")
def given(target: Running, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a snapshot, a series and a log."""
    found = tmp_path_factory.mktemp("given")
    lines = [
        ["snapshot", str(target.pid), f"{found}/given.heap"],
        ["record", str(target.pid), "-o", f"{found}/given.csv", "--duration=30ms", "--every=10ms"],
        ["trace", "-o", f"{found}/given.log", "--stacks=all", "--", "/bin/true"],
    ]
    for line in lines:
        done = gdbheap(*line)
        assert done.returncode == 0, done.stderr
    return found


@pytest.mark.cases(2)
@pytest.mark.parametrize("noun", list(COMMANDS))
def test_system_calls(noun: str, target: Running, given: Path, tmp_path: Path) -> None:
    """No command opens for writing, makes or renames anything but what the line names and its own temporary files."""
    strace = shutil.which("strace")
    if strace is None:
        pytest.skip("no strace")
    out, home, temporary, standing = (tmp_path / name for name in ("out", "home", "temporary", "standing"))
    for made in (home, temporary, standing):
        made.mkdir(0o700)
    shutil.copytree(given, out)
    line = line_for(noun, target, out)
    command = [
        strace,
        "-f",
        "-y",
        "-s",
        "4096",
        "-o",
        str(tmp_path / "calls"),
        "-e",
        f"trace={MAKING}",
        "-e",
        "signal=none",
    ]
    environment = {**os.environ, "HOME": str(home), "TMPDIR": str(temporary), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [*command, str(GDBHEAP), *(line or [])], cwd=standing, env=environment, stdin=subprocess.DEVNULL,
        capture_output=True, text=True, timeout=PATIENCE,
    )  # fmt: skip
    if "ptrace" in done.stderr and not (tmp_path / "calls").exists():
        pytest.skip("strace may trace nothing here")
    assert "unrecognized" not in done.stderr and "Traceback" not in done.stderr, done.stderr
    made = list(written_to((tmp_path / "calls").read_text(errors="replace")))
    allowed = (str(out), str(home), str(temporary))
    wrong = [path for path in made if not path.startswith(allowed) and not ELSEWHERE.match(path)]
    assert not wrong, (line, wrong)
    assert os.listdir(standing) == [] and not list(temporary.iterdir())


def written_to(text: str) -> Iterator[str]:
    """Yield the paths that calls opened for writing, made or renamed, where they succeeded."""
    for found in map(CALL.search, text.splitlines()):
        if found is None or int(found[3]) < 0 or (found[1].startswith("open") and not WRITES.search(found[2])):
            continue
        for folder_of, name in QUOTED.findall(found[2]):
            yield os.path.normpath(os.path.join(folder_of or "/", name))
