"""The literal ``gdb -p PID -batch -x gdbheap -ex 'heap holes --min=1M'``, and ``gdbheap install``, which makes it
work."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.gdb_side import documents, gdb, home, needs_gdb, own_lines, runs
from support.programs import GDBHEAP, PATIENCE, Running, c_program, running

from gdbheap.commands.shell import installation
from gdbheap.errors import NotPermitted

ROOT = Path(__file__).resolve().parent.parent
LITERAL = ["-batch", "-x", "gdbheap", "-ex", "heap holes --min=1M"]


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Yield a program with a known number of holes."""
    folder = tmp_path_factory.mktemp("target")
    seed = random.randrange(1 << 30)
    print(f"seed of the holes: {seed}")
    with running(c_program("holes", seed, 40, 3_000_000, 0, 0, folder / "table"), folder) as started:
        yield started


def folders(directory: Path) -> dict[str, Path]:
    """Return the working directories of the command: the root, the checkout, and a folder beside one named gdbheap."""
    beside = directory / "beside"
    (beside / "gdbheap").mkdir(parents=True)
    (beside / "gdbheap" / "__init__.py").write_text("raise ImportError('a stranger')\n")
    return {"/": Path("/"), "the checkout": ROOT, "beside a folder gdbheap": beside}


@needs_gdb
@pytest.mark.parametrize("where", ["/", "the checkout", "beside a folder gdbheap"])
def test_literal_command(where: str, target: Running, tmp_path: Path) -> None:
    """Check that the command prints the table and exits with 0, and that the process runs on."""
    environment = home(tmp_path)
    done = gdb(["-p", str(target.pid), *LITERAL], environment, folders(tmp_path)[where])
    assert done.returncode == 0, done.stderr
    assert own_lines(done) == []
    title = next(line for line in done.stdout.splitlines() if "block before" in line)
    assert title.split()[:2] == ["address", "size"]
    assert " hold" in done.stdout.partition("address")[0]
    assert runs(target.pid)


@needs_gdb
def test_other_ways_to_load(target: Running, tmp_path: Path) -> None:
    """Check the command by its full path, sourced, twice, through a link with another name, from any folder, and
    without an installation."""
    environment = {**os.environ, "HOME": str(tmp_path)}
    script = subprocess.run([str(GDBHEAP), "--gdb-script"], capture_output=True, text=True, check=True).stdout.strip()
    link = tmp_path / "short"
    link.symlink_to(script)
    for load in (["-x", script], ["-ex", f"source {script}"], ["-x", script, "-x", script], ["-x", str(link)]):
        done = gdb(["-p", str(target.pid), "-batch", *load, "-ex", "heap holes --json"], environment, tmp_path)
        assert done.returncode == 0, (load, done.stderr)
        assert [document["command"] for document in documents(done)] == ["heap holes"], load
        assert own_lines(done) == []


@needs_gdb
def test_nothing_else_is_imported(target: Running, tmp_path: Path) -> None:
    """Check that gdb's Python takes exactly three packages from gdbheap's folder."""
    look = (
        "python import sys, os, gdbheap; site = os.path.dirname(os.path.dirname(gdbheap.__file__)); "
        "print('FROM', sorted({name.split('.')[0] for name, module in sys.modules.items() "
        "if (getattr(module, '__file__', None) or '').startswith(site + '/')}), site in sys.path)"
    )
    done = gdb(["-p", str(target.pid), *LITERAL, "-ex", look], home(tmp_path))
    line = next(line for line in done.stdout.splitlines() if line.startswith("FROM"))
    names, on_path = line.removeprefix("FROM ").rsplit(" ", 1)
    assert set(eval(names)) <= {"gdbheap", "elftools"}
    assert on_path == "False"


def install(environment: dict[str, str], *options: str) -> subprocess.CompletedProcess[str]:
    """Run ``gdbheap install``."""
    command = [str(GDBHEAP), "install", *options]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=PATIENCE)


@pytest.mark.parametrize("existing", [None, "xdg", "config", "home", "xdg and home"])
def test_install_writes_what_gdb_reads(existing: str | None, tmp_path: Path) -> None:
    """Check that the first existing of gdb's three files is written, once, and that --remove restores every byte."""
    environment = {key: value for key, value in os.environ.items() if key != "XDG_CONFIG_HOME"}
    environment["HOME"] = str(tmp_path)
    places = {
        "xdg": tmp_path / "x" / "gdb" / "gdbinit",
        "config": tmp_path / ".config" / "gdb" / "gdbinit",
        "home": tmp_path / ".gdbinit",
    }
    before = b"set confirm off\n# \xff no utf-8, no line break at the end"
    for name in (existing or "").split(" and ") if existing else []:
        places[name].parent.mkdir(parents=True, exist_ok=True)
        places[name].write_bytes(before)
    if existing and "xdg" in existing:
        environment["XDG_CONFIG_HOME"] = str(tmp_path / "x")
    expected = places[(existing or "home").split(" and ")[0]]
    first, second = install(environment), install(environment)
    assert (first.returncode, second.returncode) == (0, 0), first.stderr + second.stderr
    assert str(expected) in first.stdout and str(expected) in second.stdout
    text = expected.read_bytes()
    assert text.count(b"/loader/start.py") == 1
    untouched = [path for path in places.values() if path != expected and path.exists()]
    assert all(path.read_bytes() == before for path in untouched)
    assert install(environment, "--remove").returncode == 0
    left = expected.read_bytes()
    assert left.rstrip(b"\n") == (before if existing else b"")


def test_install_refusals(tmp_path: Path) -> None:
    """Check one line and a status for files that cannot be written, and for unknown options."""
    (tmp_path / ".gdbinit").mkdir()
    environment = {key: value for key, value in os.environ.items() if key != "XDG_CONFIG_HOME"}
    cases = [
        ({**environment, "HOME": "/proc/self"}, [], 1),
        ({**environment, "HOME": str(tmp_path)}, ["--bogus"], 2),
        ({**environment, "HOME": str(tmp_path / "mistyped")}, [], 2),
        ({key: value for key, value in environment.items() if key != "HOME"}, [], 2),
    ]
    for changed, options, status in cases:
        done = install(changed, *options)
        assert done.returncode == status, done.stderr
        assert done.stdout == "" and len(done.stderr.splitlines()) == 1
    assert os.listdir(tmp_path) == [".gdbinit"]


@pytest.mark.parametrize("line", ["directory /elsewhere/gdbheap/loader", "python elsewhere('/elsewhere')"])
def test_an_older_installation_is_replaced(line: str, tmp_path: Path) -> None:
    """Check that the line of another environment is replaced: of two, gdb would load the first."""
    environment = {**home(tmp_path)}
    path = tmp_path / ".gdbinit"
    mark, ours = path.read_text().splitlines()
    path.write_text(f"{mark}\n{line}\nset confirm off\n")
    assert install(environment).returncode == 0
    assert path.read_text().splitlines() == ["set confirm off", mark, ours]


def test_a_package_with_folders_nested_by_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that the package is refused if others may write to its folder, however deep the folders are that they
    nested in it."""
    tmp_path.chmod(0o755)
    places = [tmp_path / "gdbheap" / "loader"]
    places[0].mkdir(parents=True)
    (places[0] / "start.py").write_text("")
    monkeypatch.setattr(installation, "FILE", places[0] / "start.py")
    places[0].chmod(0o777)
    try:
        for _ in range(sys.getrecursionlimit() + 100):
            places.append(places[-1] / "a")
            places[-1].mkdir()
        with pytest.raises(NotPermitted, match="loader"):
            installation._check_installation()
    finally:
        for place in reversed(places[1:]):
            place.rmdir()
