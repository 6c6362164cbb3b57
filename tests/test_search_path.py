"""Nobody but root, the user, and the user that sudo names can influence the code that gdb runs for gdbheap."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.gdb_side import GDB, documents, executed, gdb, home, needs_gdb, own_lines
from support.programs import GDBHEAP, PATIENCE, Running, c_program, running
from support.users import NOBODY, installed, let_nobody_write

pytestmark = needs_gdb
ROOT = Path(__file__).resolve().parent.parent
EVIL = "EVIL"
# Planted as gdb's own commands, which -x runs from a file without an ending.
PLANTED = f"echo {EVIL}\\n\n"
LOADED = "python import sys; print('LOADED', sorted(name for name in sys.modules if name.startswith('gdbheap')))"


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Yield a program with some blocks."""
    folder = tmp_path_factory.mktemp("target")
    with running(c_program("holes", 1, 4, 100_000, 0, 0, folder / "table"), folder) as started:
        yield started


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return the environment of a user who has typed ``gdbheap install``."""
    return home(tmp_path_factory.mktemp("home"))


@pytest.fixture
def planted(tmp_path: Path) -> Path:
    """Return a folder of another user, with a file ``gdbheap`` in it."""
    (tmp_path / "gdbheap").write_text(PLANTED)
    if os.getuid() == 0:
        for path in (tmp_path, tmp_path / "gdbheap"):
            os.chown(path, NOBODY, NOBODY)
    return tmp_path


def script() -> Path:
    """Return the output of ``gdbheap --gdb-script``."""
    return Path(subprocess.run([GDBHEAP, "--gdb-script"], capture_output=True, text=True, check=True).stdout.strip())


def package_in(folder: Path) -> Path:
    """Return the loader of a copy of the package in a folder."""
    for name in ("gdbheap", "elftools"):
        shutil.copytree(installed(name), folder / name)
    return folder / "gdbheap" / "loader" / "gdbheap"


def as_nobody(folder: Path) -> None:
    """Give a folder and all in it to another user."""
    for path in (folder, *folder.rglob("*")):
        os.chown(path, NOBODY, NOBODY)


needs_root = pytest.mark.skipif(os.getuid() != 0, reason="needs root to act as another user")


@pytest.mark.in_turn("way", 1)
@pytest.mark.parametrize("way", ["-ex", "full path"])
def test_a_planted_file_is_not_run(way: str, planted: Path, target: Running, environment: dict[str, str]) -> None:
    """Check that the documented commands run nothing in the current folder, and that one line warns about the file
    there."""
    load = ["-x", str(script())] if way == "full path" else []
    done = gdb(["-p", str(target.pid), "-batch", *load, "-ex", "heap arenas --json"], environment, planted)
    assert done.returncode == 0 and EVIL not in done.stdout, done.stderr
    assert [document["command"] for document in documents(done)] == ["heap arenas"]
    assert len(own_lines(done)) == 1 and "current folder" in own_lines(done)[0]


def test_no_warning_without_a_file(tmp_path: Path, environment: dict[str, str]) -> None:
    """Check that neither a folder of that name, which gdb would not run, nor gdbheap's own script, nor a link to it
    causes a warning."""
    (tmp_path / "gdbheap").mkdir()
    (tmp_path / "linked").mkdir()
    (tmp_path / "linked" / "gdbheap").symlink_to(script())
    for folder in (tmp_path, tmp_path / "linked", script().parent):
        assert gdb(["-batch", "-ex", "print 6 * 7"], environment, folder).stderr == ""


def test_nothing_is_imported_before_it_is_used(target: Running, environment: dict[str, str]) -> None:
    """Check that neither the start nor help nor the completion of nouns imports it; a function loads it as a command
    does."""
    asked = ["help heap holes", "help gdbheap pins", "help function heap_size", "complete heap ho", LOADED]
    done = gdb(["-p", str(target.pid), "-batch", *executed([*asked, "print $heap_block($sp)", LOADED])], environment)
    before, after = [line for line in done.stdout.splitlines() if line.startswith("LOADED")]
    assert before == "LOADED []" and "gdbheap.heap" in after
    assert "  --min=SIZE  " in done.stdout and "Usage: gdbheap pins" in done.stdout and "heap holes" in done.stdout
    assert "$1 = 0" in done.stdout, done.stderr


@pytest.mark.parametrize(
    ("words", "status"),
    [
        (["-ex", "print 1"], 0),
        (["-ex", "print nosuch"], 1),
        (["--version"], 0),
        (["-ex", "he print"], 0),
        (["-p", "0", "-ex", "print 1"], 0),
        (["-ex", "heap"], 4),
        (["-p", str(2**22 + 1), "-ex", "heap"], 4),
        (["-p", str(2**22 + 1), "-ex", "heap", "-ex", "print 1"], 4),
        (["-p", str(2**22 + 1), "-ex", "print 1"], 0),
    ],
)
def test_statuses_of_a_batch(words: list[str], status: int, environment: dict[str, str]) -> None:
    """Check gdbheap's status if one of its commands was typed, and gdb's own status otherwise."""
    done = gdb(["-batch", *words], environment)
    without = gdb(["-nx", "-batch", *words], environment)
    assert done.returncode == status, done.stderr
    if "heap" in words:
        assert len(own_lines(done)) == 1
    else:
        assert (without.returncode, without.stdout, without.stderr) == (done.returncode, done.stdout, done.stderr)


def test_a_process_that_was_there(target: Running, environment: dict[str, str]) -> None:
    """Check that commands loaded after a process was detached do not say that it cannot be attached."""
    done = gdb(["-p", str(target.pid), "-batch", *executed(["detach", "heap"])], environment)
    assert done.returncode == 4 and "gdb has no process and no core" in own_lines(done)[0]


@needs_root
def test_refused_attach(environment: dict[str, str]) -> None:
    """Check that a command explains why gdb may not attach, and ends with that status."""
    rights = ["setpriv", "--bounding-set=-all", "--inh-caps=-all", f"--reuid={NOBODY}", "--clear-groups"]
    command = [*rights, GDB, "-batch", "-x", str(script()), "-p", "1", "-ex", "heap"]
    done = subprocess.run(command, env=environment, cwd="/", capture_output=True, text=True, timeout=PATIENCE)
    if "No such file" in done.stderr or "ermission denied" in done.stderr.splitlines()[0]:
        pytest.skip("another user may not read this checkout")
    assert done.returncode == 3, done.stderr


def test_a_vanished_installation(tmp_path: Path) -> None:
    """Check one line at a start of gdb, nothing else; the rest of gdbinit is read."""
    environment = home(tmp_path)
    gdbinit = tmp_path / ".gdbinit"
    gdbinit.write_text(gdbinit.read_text().replace(str(script().parent), "/vanished") + "echo after\\n\n")
    done = gdb(["-batch", "-ex", "print 6 * 7"], environment)
    assert (done.returncode, done.stdout) == (0, "after\n$1 = 42\n")
    assert len(done.stderr.splitlines()) == 1 and "/vanished/start.py" in done.stderr


OTHERS = """
class Theirs(gdb.Command):
    def __init__(self):
        super().__init__("heap", gdb.COMMAND_DATA)
    def invoke(self, line, from_tty):
        print("THEIRS")
Theirs()
"""


@pytest.mark.in_turn("order", 1)
@pytest.mark.parametrize("order", ["before", "after"])
def test_another_extension(order: str, target: Running, tmp_path: Path) -> None:
    """Check that ``gdbheap`` works in any order of loading, that the other extension's ``heap`` is unchanged, and that
    the hints can be typed.
    """
    environment = home(tmp_path)
    theirs, gdbinit = tmp_path / "theirs.py", tmp_path / ".gdbinit"
    theirs.write_text(OTHERS)
    lines = [gdbinit.read_text(), f"source {theirs}\n"]
    gdbinit.write_text("".join(lines if order == "after" else reversed(lines)))
    commands = ["heap", "gdbheap arenas --json", "gdbheap nosuch"]
    done = gdb(["-p", str(target.pid), "-batch", *executed(commands)], environment)
    assert "THEIRS" in done.stdout
    assert [document["command"] for document in documents(done)] == ["heap arenas"]
    clash, wrong = own_lines(done)
    assert "another extension" in clash and wrong.startswith("gdbheap: unrecognized")


def test_what_packages_leave_for_gdb(tmp_path: Path, environment: dict[str, str]) -> None:
    """Check that the file of the Debian package, and the image's link, act like the line in gdbinit, and that
    nothing happens without it."""
    text = (ROOT / "packaging" / "debian" / "gdbinit.py").read_text()
    there, gone, link = (tmp_path / f"{name}.py" for name in ("there", "gone", "link"))
    there.write_text(text.replace('"/usr/lib/gdbheap/gdbheap/loader', f'"{script().parent}'))
    gone.write_text(text.replace("/usr/lib/gdbheap", "/usr/lib/gone"))
    link.symlink_to(script().parent / "start.py")
    for path in (there, link):
        done = gdb(["-nx", "-batch", "-x", str(path), "-ex", "help heap holes", "-ex", LOADED], environment)
        assert "  --min=SIZE  " in done.stdout and "LOADED []" in done.stdout, done.stderr
    done = gdb(["-nx", "-batch", "-x", str(gone), "-ex", "print 6 * 7"], environment)
    assert (done.returncode, done.stdout, done.stderr) == (0, "$1 = 42\n", "")


def descriptor_of(path: Path) -> int:
    """Open a file that a program started from here inherits, with a number above all that gdb opens."""
    number = os.open(path, os.O_RDONLY)
    try:
        os.dup2(number, 200, inheritable=True)
        return 200
    finally:
        os.close(number)


@pytest.mark.in_turn("owner", 1)
@pytest.mark.parametrize("owner", ["another", "our own"])
def test_a_planted_descriptor_is_not_taken(
    owner: str, tmp_path: Path, target: Running, environment: dict[str, str]
) -> None:
    """Check that the script is the file that gdb itself opened, not a package that gdb's starter left open."""
    loader = package_in(tmp_path)
    (tmp_path / "gdbheap" / "__init__.py").write_text(f"print({EVIL!r})\n")
    if owner == "another":
        if os.getuid() != 0:
            pytest.skip("needs root to act as another user")
        as_nobody(tmp_path)
    number = descriptor_of(loader)
    try:
        command = [GDB, "-p", str(target.pid), "-batch", "-x", "gdbheap", "-ex", "heap arenas --json"]
        done = subprocess.run(
            command, env=environment, cwd="/", pass_fds=[number], capture_output=True, text=True, timeout=PATIENCE
        )
    finally:
        os.close(number)
    assert EVIL not in done.stdout and done.returncode == 0, done.stderr
    assert [document["command"] for document in documents(done)] == ["heap arenas"]


def sourced(loader: Path, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Run a loader in gdb by its full path."""
    return gdb(["-nx", "-batch", "-x", str(loader), "-ex", LOADED], environment)


@needs_root
def test_whose_package_it_is(tmp_path: Path, environment: dict[str, str]) -> None:
    """Check that a package of another user is refused in one line, even if only one of its folders is another user's,
    unless this user called sudo.
    """
    loader = package_in(tmp_path)
    inner = tmp_path / "gdbheap" / "answers"
    os.chown(inner, NOBODY, NOBODY)
    refused = sourced(loader, environment)
    assert f"{inner} belongs to user {NOBODY}" in refused.stderr and "gdbheap.heap" not in refused.stdout
    assert len(own_lines(refused)) == 1
    as_nobody(tmp_path)
    assert "belongs to user" in sourced(loader, environment).stderr
    assert "gdbheap.heap" in sourced(loader, {**environment, "SUDO_UID": str(NOBODY)}).stdout


@pytest.mark.in_turn("place", 2)
@pytest.mark.parametrize("place", ["file", "folder", "above", "group", "list", "sticky"])
def test_what_others_may_write(place: str, tmp_path: Path, environment: dict[str, str]) -> None:
    """Check that a package is refused that others may change or replace; a sticky folder is allowed above it, where
    nothing is imported from."""
    above = tmp_path / "above"
    loader = package_in(above / "site")
    file = above / "site" / "gdbheap" / "heap.py"
    chosen = {"file": file, "list": file, "above": above, "sticky": above / "site"}.get(place, loader.parent)
    if place == "group":
        if os.getuid() != 0:
            pytest.skip("needs root to give a folder to a group")
        os.chown(chosen, 0, 12345)
    if place == "list":
        let_nobody_write(chosen)
    else:
        added = {"group": 0o020, "sticky": 0o1002}.get(place, 0o002)
        chosen.chmod(chosen.stat().st_mode | added)
    done = sourced(loader, environment)
    assert f"write to {chosen}" in done.stderr and "gdbheap.heap" not in done.stdout
    if place == "above":
        chosen.chmod(0o1777)
        assert "gdbheap.heap" in sourced(loader, environment).stdout


def test_the_folder_and_pythonpath_have_no_say(tmp_path: Path, target: Running, environment: dict[str, str]) -> None:
    """Check that gdb's Python takes gdbheap from its own place, and nothing from the current folder."""
    for name in ("gdbheap", "elftools", "json", "sqlite3"):
        (tmp_path / f"{name}.py").write_text(f"print({EVIL!r})\n")
    path = tmp_path / "path" / "gdbheap"
    path.mkdir(parents=True)
    (path / "__init__.py").write_text(f"print({EVIL!r})\n")
    planted = {**environment, "PYTHONPATH": str(path.parent)}
    done = gdb(["-p", str(target.pid), "-batch", "-ex", "heap arenas --json"], planted, tmp_path)
    assert done.returncode == 0 and EVIL not in done.stdout, done.stderr
