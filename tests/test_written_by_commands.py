"""Files that commands write: only those that their lines name, with mode 600, and never through names that others
plant."""

from __future__ import annotations

import os
import re
import shutil
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.attackers import needs_root, place, planted
from support.programs import GDBHEAP, PATIENCE, Running, c_program, gdbheap, running

from gdbheap.commands.surface.options import Writing, file_mode
from gdbheap.commands.surface.registry import COMMANDS
from gdbheap.errors import UsageError
from gdbheap.export.partitions import _is_local, parse_partition, put
from gdbheap.export.table_export import check

VICTIM = b"what must not change\n"


@pytest.fixture
def shared() -> Iterator[Path]:
    """Yield a folder like /tmp, with a file of root's that nobody else may write to."""
    with place(0o1777) as found:
        (found / "victim").write_bytes(VICTIM)
        yield found


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Yield a small program."""
    with running(c_program("steps", 5, 1), tmp_path_factory.mktemp("target")) as found:
        yield found


@pytest.fixture(scope="module")
def given(target: Running, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a snapshot, a series and a log."""
    found = tmp_path_factory.mktemp("given")
    lines = [
        ["snapshot", str(target.pid), f"{found}/given.heap"],
        ["record", str(target.pid), "-o", f"{found}/given.csv", "--duration=30ms", "--every=10ms"],
        ["trace", "-o", f"{found}/given.log", "--stacks=all", "--", "/bin/ls", "/"],
    ]
    for line in lines:
        done = gdbheap(*line)
        assert done.returncode == 0, done.stderr
    return found


def line_of(kind: str, target: Running, out: Path) -> list[str]:
    """Return a command line that writes into `out`, which has a log of calls."""
    pid, log = str(target.pid), str(out / "given.log")
    trees = [f"--{tree}={out}/{tree}" for tree in ("folded", "svg", "speedscope", "pprof")]
    core = ["--core"] if shutil.which("gdb") else []
    return {
        "snapshot": ["snapshot", pid, str(out / "a.heap"), "--blocks"],
        "report": ["report", pid, "-o", str(out / "report.html")],
        "trees": ["heap", pid, *trees],
        "map": ["map", pid, f"--svg={out}/map.svg"],
        "csv": ["export", pid, "-o", str(out / "csv"), "--format=csv"],
        "sqlite": ["export", pid, "-o", str(out / "sqlite"), "--format=sqlite"],
        "parts": ["export", pid, "-o", str(out / "parts"), "--format=csv", "--partition=host=a,pid"],
        "record": ["record", pid, f"-o{out}/b.csv", "--every=10ms", "--duration=30ms", "--snapshot-every=10ms"],
        "trace": ["trace", "-o", str(out / "calls.log"), "--stacks=all", "--", "/bin/ls", "/"],
        "calls": ["calls", log, f"--svg={out}/calls.svg"],
        "stacks": ["stacks", log, f"--svg={out}/stacks.svg"],
        "film": ["replay", log, f"--frames={out}/film", "--every=20"],
        "watch": ["watch", pid, "--rss=1K", "--heap", f"--output={out}", *core],
    }[kind]


KINDS = ("snapshot", "report", "trees", "map", "csv", "sqlite", "parts", "record", "trace", "calls", "stacks", "film")


@pytest.mark.cases(3)
@pytest.mark.parametrize("mode", [None, 0o640])
@pytest.mark.parametrize("kind", [*KINDS, "watch"])
def test_modes(kind: str, mode: int | None, target: Running, given: Path, tmp_path: Path) -> None:
    """Check that every file has mode 600, whatever the umask is, or the requested mode; folders match."""
    out = tmp_path / "out"
    shutil.copytree(given, out)
    known = set(out.rglob("*"))
    line = line_of(kind, target, out)
    before = os.umask(0)
    try:
        done = gdbheap(*line[:1], *([f"--mode={mode:o}"] if mode else []), *line[1:])
    finally:
        os.umask(before)
    assert done.returncode == 0, done.stderr
    found = {path: stat.S_IMODE(path.lstat().st_mode) for path in out.rglob("*") if path not in known}
    assert found and all(
        bits == ((0o750 if mode else 0o700) if path.is_dir() else mode or 0o600) for path, bits in found.items()
    ), found
    if kind == "watch":
        assert {path.suffix for path in found} == {".heap", ".json", *([".core"] if shutil.which("gdb") else [])}
    if kind in ("csv", "sqlite", "parts", "film"):
        assert any(path.is_dir() for path in found)


def test_mode_is_everywhere() -> None:
    """Check that exactly the commands that write a file have --mode, and that an impossible mode is refused."""
    has = {noun for noun, command in COMMANDS.items() if issubclass(command.options, Writing)}
    assert has == {noun for noun, command in COMMANDS.items() if command.writes}
    for text in ("777", "400", "060", "abc", "8", "1600", "0o600", ""):
        with pytest.raises(ValueError, match="is not a file mode"):
            file_mode(text)
    assert [file_mode(text) for text in ("600", "0644", "660")] == [0o600, 0o644, 0o660]


@needs_root
def test_told_where(target: Running, tmp_path: Path) -> None:
    """Check that root gets a message with the place of the files if no folder was named."""
    command = [str(GDBHEAP), "watch", str(target.pid), "--rss=1K"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0 and f"files are written to {tmp_path}\n" in done.stderr
    assert [path.suffix for path in tmp_path.iterdir()] == [".heap"]


@needs_root
@pytest.mark.cases(2)
@pytest.mark.parametrize("kind", KINDS)
def test_planted_for_commands(kind: str, target: Running, given: Path, shared: Path) -> None:
    """Check that a planted link is refused with one line and status 2, and that its target does not change."""
    shutil.copy(given / "given.log", shared)
    victim, line = shared / "victim", line_of(kind, target, shared)
    known = set(os.listdir(shared))
    named = [word[word.index(str(shared)) :] for word in line if str(shared) in word]
    paths = [path for path in named if not path.endswith("given.log")]
    planted(lambda: [os.symlink(victim, path) for path in paths])
    done = gdbheap(*line)
    assert (done.returncode, done.stderr.count("\n"), done.stdout) == (2, 1, "") and "link" in done.stderr, done.stderr
    assert all(os.path.islink(path) for path in paths) and victim.read_bytes() == VICTIM
    assert set(os.listdir(shared)) == known | {os.path.basename(path) for path in paths}


LOCAL = ("file://{}", "local://{}", "dir::file://{}", "simplecache::file://{}", "dir::local://{}", "c://{}", "://{}")


@needs_root
@pytest.mark.parametrize("form", LOCAL)
def test_no_url_of_files(form: str, target: Running, shared: Path) -> None:
    """Check that files of this machine are written only by gdbheap's rules: a URL that leads there is refused,
    before the process is read and when a file is stored, and a planted link is not followed."""
    pytest.importorskip("fsspec", reason="the extra gdbheap[remote] is not installed")
    url, victim, place_of_data = form.format(f"{shared}/heaps"), shared / "victim", "types/pid=1/data.csv"
    link = shared / "heaps" / place_of_data
    planted(lambda: [os.makedirs(link.parent), os.symlink(victim, link)])
    (shared / "rows").write_bytes(b"rows")
    with pytest.raises(UsageError):
        put(url, {place_of_data: str(shared / "rows")}, 0o600)
    with pytest.raises(UsageError):
        check(url, "csv", parse_partition("pid"))
    if form == LOCAL[0]:
        done = gdbheap("export", str(target.pid), "-o", url, "--partition=pid", "--format=csv")
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr == f"gdbheap: {url} names files on this machine: give the path of the folder instead\n"
    assert victim.read_bytes() == VICTIM and os.listdir(link.parent) == [link.name] and link.is_symlink()


def test_no_system_around_files() -> None:
    """Check that a file system that writes files of this machine is recognised, whatever its name or its own claims
    are, and that others are not."""
    fsspec = pytest.importorskip("fsspec", reason="the extra gdbheap[remote] is not installed")
    files, memory = fsspec.filesystem("file"), fsspec.filesystem("memory")
    for kind, more in (("dir", {"path": "/tmp"}), ("simplecache", {}), ("filecache", {}), ("blockcache", {})):
        assert _is_local(fsspec.filesystem(kind, fs=files, **more)), kind
        assert not _is_local(fsspec.filesystem(kind, fs=memory, **more)), kind
    inner = fsspec.filesystem("dir", fs=files, path="/tmp")
    assert _is_local(fsspec.filesystem("simplecache", fs=inner)) and _is_local(files) and not _is_local(memory)


MAKING = "open,openat,openat2,creat,rename,renameat,renameat2,link,linkat,symlink,symlinkat,mkdir,mkdirat,truncate"
CALL = re.compile(r"(?:^\d+ +)?(\w+)\((.*)\) += (-?\d+)")
WRITES = re.compile(r"O_WRONLY|O_RDWR|O_CREAT|O_TRUNC|O_APPEND")
QUOTED = re.compile(r'(?:(?:AT_FDCWD|\d+)<([^>]*)>, )?"((?:[^"\\]|\\.)*)"')
ELSEWHERE = re.compile(r"/proc/|/dev/(null|tty|pts/|ptmx|shm/)|.*/__pycache__(/|\Z)|/sys/fs/cgroup/|pipe:|anon_inode:")


def line_for(noun: str, target: Running, out: Path) -> list[str] | None:
    """Return a command line that tries a command, with all files that it can write; gdb attaches to nothing under
    strace."""
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
        "watch": [pid, "--rss=1K", "--heap", f"--output={out}"],
        "growth": [pid, "--duration=0.2"], "catch": [pid, "malloc", "--size=1", "--duration=0.2"],
        "top": [pid, "--count=1"], "ps": [], "doctor": [pid], "processes": [pid], "shell": [pid],
        "stacks": [f"{out}/given.log", *trees], "replay": [f"{out}/given.log"],
        "chunks": [pid, "--svg=" + f"{out}/c.svg"],
    }  # fmt: skip
    return [*noun.split(), *known.get(noun, [pid])]


@pytest.mark.cases(2)
@pytest.mark.parametrize("noun", list(COMMANDS))
def test_system_calls(noun: str, target: Running, given: Path, tmp_path: Path) -> None:
    """Check that no command opens for writing, makes or renames anything except the files that its line names and
    its own temporary files."""
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
    if noun in ("snapshot", "map", "report", "record", "trace", "export", "watch", "owners"):
        # strace traces each child of gdbheap. A watch that has the time to report it therefore ends with status 1.
        is_barred = noun == "watch" and "gdbheap can attach to no process" in done.stderr
        assert done.returncode == is_barred, done.stderr
        assert [path for path in made if path.startswith(str(out))], done.stderr
    assert os.listdir(standing) == [] and not list(temporary.iterdir())


def written_to(text: str) -> Iterator[str]:
    """Yield the paths that successful calls opened for writing, made or renamed."""
    for found in map(CALL.search, text.splitlines()):
        if found is None or int(found[3]) < 0 or (found[1].startswith("open") and not WRITES.search(found[2])):
            continue
        for folder_of, name in QUOTED.findall(found[2]):
            yield os.path.normpath(os.path.join(folder_of or "/", name))
