"""Root acts in another user's home with that user's rights, and ignores variables of another user."""

from __future__ import annotations

import ast
import os
import random
import re
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.programs import GDBHEAP, PATIENCE
from support.scripts import script
from support.users import NOBODY, copy_packages, installed, let_nobody_write

from gdbheap import environment
from gdbheap.loader import FOLDER, START

ROOT = Path(__file__).resolve().parent.parent
needs_root = pytest.mark.skipif(os.getuid() != 0, reason="needs root to act as another user")
EVIL = "EVIL"
MINE = "root's own\n"


def gdbheap(variables: dict[str, str], *words: str, cwd: str = "/") -> subprocess.CompletedProcess[str]:
    """Run the shell command with these variables in addition to the present ones."""
    environment = {**os.environ, **variables}
    if "XDG_CONFIG_HOME" not in variables:
        environment.pop("XDG_CONFIG_HOME", None)
    command = [str(GDBHEAP), *words]
    return subprocess.run(command, env=environment, cwd=cwd, capture_output=True, text=True, timeout=PATIENCE)


@pytest.fixture
def places() -> Iterator[tuple[Path, Path]]:
    """Yield a home of another user, and a file that only root may write, in a folder of root's."""
    if os.getuid() != 0 or shutil.which("setpriv") is None:
        pytest.skip("needs root and setpriv to act as another user")
    become = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
    if subprocess.run([*become, "test", "-r", str(START)]).returncode:
        pytest.skip("another user may not read what is installed here")
    # Not in pytest's own folder, which is closed to other users.
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        home, victim = Path(folder) / "home", Path(folder) / "root" / "victim"
        for place in (home, victim.parent):
            place.mkdir()
        victim.write_text(MINE)
        victim.chmod(0o600)
        os.chown(home, NOBODY, NOBODY)
        yield home, victim


def link(place: Path, target: Path) -> None:
    """Plant a link, as the other user."""
    place.symlink_to(target)
    os.chown(place, NOBODY, NOBODY, follow_symlinks=False)


def is_untouched(victim: Path) -> bool:
    """Return whether root's file is unchanged, with its owner and rights."""
    status = victim.stat()
    return (victim.read_text(), status.st_uid, stat.S_IMODE(status.st_mode)) == (MINE, 0, 0o600)


def test_install_follows_no_name_that_can_be_guessed(places: tuple[Path, Path]) -> None:
    """Check that links at every name that the next processes could write to lead nowhere, and that the file belongs
    to the home's owner."""
    home, victim = places
    (home / ".gdbinit").write_text("set confirm off\n")
    os.chown(home / ".gdbinit", NOBODY, NOBODY)
    for number in range(os.getpid(), os.getpid() + 400):
        link(home / f".gdbinit.gdbheap-{number}", victim)
    done = gdbheap({"HOME": str(home)}, "install")
    assert is_untouched(victim)
    assert done.returncode == 0, done.stderr
    written = home / ".gdbinit"
    assert written.stat().st_uid == NOBODY and not written.is_symlink()
    assert written.read_text().startswith("set confirm off\n") and "start.py" in written.read_text()


@pytest.mark.parametrize("kind", ["file", "folder", "folder of the folder"])
def test_install_does_not_leave_the_home(kind: str, places: tuple[Path, Path]) -> None:
    """Check that a user's link to a place that only root may write is refused in one line."""
    home, victim = places
    if kind == "file":
        link(home / ".gdbinit", victim)
    elif kind == "folder":
        link(home / ".config", victim.parent)
        (victim.parent / "gdb").mkdir()
        (victim.parent / "gdb" / "gdbinit").write_text("")
    else:
        (home / ".config").mkdir()
        os.chown(home / ".config", NOBODY, NOBODY)
        link(home / ".config" / "gdb", victim.parent)
        (victim.parent / "gdbinit").write_text("")
    before = sorted(victim.parent.rglob("*"))
    done = gdbheap({"HOME": str(home)}, "install")
    assert is_untouched(victim) and sorted(victim.parent.rglob("*")) == before
    assert all(path.read_text() == "" for path in victim.parent.rglob("gdbinit"))
    assert done.returncode != 0 and len(done.stderr.splitlines()) == 1 and done.stdout == ""


def test_install_does_not_wait(places: tuple[Path, Path]) -> None:
    """Check that a pipe in the place of gdbinit is refused at once."""
    home, _ = places
    os.mkfifo(home / ".gdbinit")
    os.chown(home / ".gdbinit", NOBODY, NOBODY)
    done = gdbheap({"HOME": str(home)}, "install")
    assert done.returncode == 1 and len(done.stderr.splitlines()) == 1 and "is not a gdbinit" in done.stderr


def test_install_writes_through_a_users_own_link(places: tuple[Path, Path]) -> None:
    """Check a user's own link to settings elsewhere: the link stays, its target is written, and cleaned again."""
    home, _ = places
    kept = home / "dotfiles" / "gdbinit"
    kept.parent.mkdir()
    kept.write_text("set confirm off\n")
    kept.chmod(0o640)
    for path in (kept.parent, kept):
        os.chown(path, NOBODY, NOBODY)
    link(home / ".gdbinit", kept)
    assert gdbheap({"HOME": str(home)}, "install").returncode == 0
    assert (home / ".gdbinit").readlink() == kept and "start.py" in kept.read_text()
    assert (kept.stat().st_uid, stat.S_IMODE(kept.stat().st_mode)) == (NOBODY, 0o640)
    assert gdbheap({"HOME": str(home)}, "install", "--remove").returncode == 0
    assert kept.read_text() == "set confirm off\n" and kept.stat().st_uid == NOBODY


def test_install_in_nobodys_and_anothers_folders(places: tuple[Path, Path]) -> None:
    """Check that folders of two users at once are refused, and that a file in one user's folders is that user's."""
    home, _ = places
    other = home.parent / "other"
    other.mkdir()
    os.chown(other, 12345, 12345)
    done = gdbheap({"HOME": str(home), "XDG_CONFIG_HOME": str(other)}, "install")
    assert done.returncode == 3 and len(done.stderr.splitlines()) == 1
    assert list(other.iterdir()) == [] and list(home.iterdir()) == []
    assert gdbheap({"HOME": str(other)}, "install").returncode == 0
    assert (other / ".gdbinit").stat().st_uid == 12345


def test_install_in_roots_own_home(places: tuple[Path, Path]) -> None:
    """Check that in its own home root acts with its own rights."""
    own = places[1].parent
    assert gdbheap({"HOME": str(own)}, "install").returncode == 0
    assert (own / ".gdbinit").stat().st_uid == 0


def install_from(site: Path, home: Path) -> subprocess.CompletedProcess[str]:
    """Run ``gdbheap install`` of the package in ``site``."""
    code = (
        f"import sys; sys.path.insert(0, {str(site)!r}); from gdbheap.commands.shell.main import main; sys.exit(main())"
    )
    variables = {**os.environ, "HOME": str(home), "SUDO_UID": str(NOBODY)}
    variables.pop("XDG_CONFIG_HOME", None)
    command = [sys.executable, "-I", "-c", code, "install"]
    return subprocess.run(command, env=variables, cwd="/", capture_output=True, text=True, timeout=PATIENCE)


def test_another_users_package_stays_out_of_roots_gdbinit(places: tuple[Path, Path]) -> None:
    """Check that the package is refused, even if sudo names its owner: root's gdb would run, at each start, files
    that this user may change."""
    home, victim = places
    site = home / "site"
    site.mkdir()
    copy_packages(site)
    for path in (site, *site.rglob("*")):
        os.chown(path, NOBODY, NOBODY)
    done = install_from(site, victim.parent)
    assert done.returncode == 3 and f"belongs to user {NOBODY}" in done.stderr
    assert list(victim.parent.iterdir()) == [victim]


@pytest.mark.in_turn("place", 2)
@pytest.mark.parametrize("place", ["group", "everybody", "list", "sticky"])
def test_what_others_may_write_stays_out_of_gdbinit(place: str, places: tuple[Path, Path]) -> None:
    """Check that a package that others may write is refused: root's gdb runs start.py before anything of the package
    could check modes. A sticky folder above is allowed."""
    _, victim = places
    above = victim.parent.parent / "above"
    site = above / "site"
    site.mkdir(parents=True)
    copy_packages(site)
    loader = site / "gdbheap" / "loader"
    above.chmod(0o1777)
    assert install_from(site, victim.parent).returncode == 0
    (victim.parent / ".gdbinit").unlink()
    changed = {"group": loader, "everybody": loader / "start.py", "list": loader / "gdbheap", "sticky": site}[place]
    if place == "list":
        let_nobody_write(changed)
    else:
        os.chown(changed, 0, NOBODY)
        changed.chmod({"group": 0o775, "everybody": 0o646, "sticky": 0o1777}[place])
    done = install_from(site, victim.parent)
    assert done.returncode == 3 and f"others may change {changed} " in done.stderr
    assert list(victim.parent.iterdir()) == [victim]
    changed.chmod(changed.stat().st_mode & ~0o022)
    assert install_from(site, victim.parent).returncode == 0


# Variables that sudo -E keeps.


@pytest.fixture
def handed_over(tmp_path: Path) -> dict[str, str]:
    """Return variables of the user who typed sudo, each of which would cause something to be run, imported or
    written."""
    tools, path = tmp_path / "tools", tmp_path / "path"
    for name in ("gdbheap", "elftools"):
        (path / name).mkdir(parents=True)
        (path / name / "__init__.py").write_text(f"print({EVIL!r})\n")
    for name in ("json", "struct", "tempfile", "subprocess"):
        (path / f"{name}.py").write_text(f"print({EVIL!r})\n")
    for folder in (tools, tmp_path / "temporary"):
        folder.mkdir()
    for name in ("coredumpctl", "debuginfod-find", "gdb", "ldconfig"):
        (tools / name).write_text(f"#!/bin/sh\necho {EVIL} >&2\nexit 1\n")
        (tools / name).chmod(0o755)
    return {
        "SUDO_UID": "12345",
        "PATH": f"{tools}:{os.environ['PATH']}",
        "PYTHONPATH": str(path),
        "HOME": str(tmp_path / "home"),
        "TMPDIR": str(tmp_path / "temporary"),
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
        "XDG_STATE_HOME": str(tmp_path / "state"),
        "DEBUGINFOD_URLS": "http://127.0.0.1:1",
        "DEBUGINFOD_CACHE_PATH": str(tmp_path / "cache"),
    }


@needs_root
@pytest.mark.parametrize("sudo", ["12345", "0"], ids=["once", "twice"])
@pytest.mark.parametrize("words", [["--version"], ["doctor"], ["--coredump=1"], ["info", str(os.getpid())]])
def test_variables_of_another_change_nothing(
    words: list[str], sudo: str, handed_over: dict[str, str], tmp_path: Path
) -> None:
    """Check that nothing is imported, run or written because of them. A second sudo names root."""
    handed_over["SUDO_UID"] = sudo
    before = sorted(tmp_path.rglob("*"))
    done = gdbheap(handed_over, *words, cwd=str(tmp_path / "path"))
    assert EVIL not in done.stdout + done.stderr and str(tmp_path) not in done.stdout
    assert done.returncode == (4 if words == ["--coredump=1"] else 0), done.stderr
    assert sorted(tmp_path.rglob("*")) == before


def test_our_own_variables_count(handed_over: dict[str, str]) -> None:
    """Check that these variables have their effect without another user."""
    own = {name: value for name, value in handed_over.items() if name not in ("SUDO_UID", "PYTHONPATH")}
    assert EVIL in gdbheap(own, "--coredump=1").stdout + gdbheap(own, "--coredump=1").stderr


def test_a_restriction_counts(rng: random.Random) -> None:
    """Check that GDBHEAP_NO_TEXT hides contents, even if another user set it."""
    word = f"secret{rng.randrange(1 << 32)}"
    code = f"import signal; kept = b'{word}' * 40; print(id(kept), flush=True); signal.pause()"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            address = process.stdout.readline().strip()
            shown, hidden = (
                gdbheap({"SUDO_UID": "12345", **more}, "at", str(process.pid), address)
                for more in ({}, {"GDBHEAP_NO_TEXT": "1"})
            )
        finally:
            process.kill()
    assert shown.returncode == hidden.returncode == 0, shown.stderr
    assert word in shown.stdout and word not in hidden.stdout


def test_no_program_of_the_current_folder(handed_over: dict[str, str], tmp_path: Path) -> None:
    """Check that an empty or relative part of PATH is ignored."""
    for path in ("", ".", f":{os.environ['PATH']}", f"tools:{os.environ['PATH']}"):
        done = gdbheap({"PATH": path}, "--coredump=1", cwd=str(tmp_path / "tools" if "tools" not in path else tmp_path))
        assert EVIL not in done.stdout + done.stderr


@pytest.mark.parametrize(
    ("variables", "expected"),
    [({}, False), ({"SUDO_UID": str(os.geteuid())}, True), ({"SUDO_UID": "12345"}, True), ({"SUDO_UID": "x"}, True)],
)
def test_who_is_another(variables: dict[str, str], expected: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that a user of sudo counts as another, even if sudo names the same user: another user's variables may
    have come that way."""
    monkeypatch.delenv("SUDO_UID", raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("TMPDIR", "/somewhere")
    assert environment.is_borrowed() is expected
    assert environment.trusted("TMPDIR") == ("" if expected else "/somewhere")


# Modules that may read variables without environment.py, and for which purpose.
READERS = {
    "tracing/traced_command.py": "what a command is started with",
    "tracing/replay_settings.py": "what the replayer is started with",
    "report/formats/plot.py": "which settings matplotlib is imported without",
    "refusals/refusal.py": "which kind of container this is",
    "targets/cores/debuginfod.py": "what the client is started with, once trusted() has named servers",
    "watching/actions.py": "what --run is started with",
}
MEANT = "os.environ"


def readers(folder: Path) -> Iterator[tuple[str, str]]:
    """Yield the modules below a folder that read variables, and the name, or all."""
    for path in sorted(folder.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Attribute) and ast.unparse(node) in (MEANT, "os.getenv"):
                yield path.relative_to(folder).as_posix(), path.read_text().splitlines()[node.lineno - 1]


def test_one_place_decides() -> None:
    """Check that no other module reads a variable that makes gdbheap load, write, fetch or run something, and that
    none searches PATH."""
    honoured = environment.HONOURED
    strays = []
    for name, line in readers(FOLDER.parent):
        read = set(re.findall(r"[A-Z]+_?[A-Z_]*", line.replace("LONG_STATE", "GDBHEAP_LONG_STATE")))
        is_harmless = "wanted(" in line or "is_hidden(" in line or "= os.environ," in line or bool(read & honoured)
        if name not in ("environment.py", "commands/shell/conversation.py", *READERS) and not is_harmless:
            strays.append(f"{name}: {line.strip()}")
    assert strays == []
    lookers = [path for path in FOLDER.parent.rglob("*.py") if "shutil.which" in path.read_text()]
    assert [path.name for path in lookers] == ["actions.py"]


def test_debians_command_is_isolated() -> None:
    """Check that the command of Debian's package imports nothing from variables or a user's folder."""
    first = (ROOT / "packaging" / "debian" / "gdbheap.py").read_text().splitlines()[0]
    assert first == "#!/usr/bin/python3 -I"
    assert installed("gdbheap") == FOLDER.parent


def test_requirements_are_locked() -> None:
    """Check that the packages contain the requirements of pyproject.toml, in one version with a hash, and that all
    packages install exactly these."""
    from packaging.requirements import Requirement

    lines = (ROOT / "packaging" / "requirements.txt").read_text(encoding="utf-8").splitlines()[1:]
    found = [re.fullmatch(r"([\w.-]+)==([\w.]+) --hash=sha256:[0-9a-f]{64}", line) for line in lines]
    versions = {line[1]: line[2] for line in found if line is not None}
    wanted = [Requirement(text) for text in script("requirements").lists("project")["dependencies"]]
    assert len(versions) == len(lines) == len(wanted)
    assert all(versions.get(one.name, "") in one.specifier for one in wanted)
    for name in ("debian/rules", "Containerfile"):
        assert "--require-hashes" in (ROOT / "packaging" / name).read_text()
