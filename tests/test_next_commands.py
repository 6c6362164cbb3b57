"""Commands that the first page offers: each can be pasted unchanged, and answers."""

from __future__ import annotations

import os
import random
import shlex
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.attackers import STRANGER, needs_root, place
from support.library import heap_of
from support.programs import PATIENCE, SOURCES, ask, build, c_program, gdbheap, running

from gdbheap.allocators import runtimes
from gdbheap.allocators.runtimes import Runtime, kinds
from gdbheap.findings.finding import MAX_LINE, Evidence
from gdbheap.host.program_name import command_words
from gdbheap.host.rights import has_our_rights
from gdbheap.host.sockets import listening

ODD = ["a b", "it's", "$HOME;x", "--", "", 'the "last"']
WAITS = "import sys; sys.stdin.readline()"


@pytest.mark.parametrize(
    ("arguments", "exe", "words"),
    [
        (["./p", "a b", "it's"], "/srv/p", ["/srv/p", "a b", "it's"]),
        (["/srv/p"], "/srv/p", ["/srv/p"]),
        (["-bash"], "/usr/bin/bash", ["/usr/bin/bash"]),
        (["nginx: worker process"], "/usr/sbin/nginx", []),
        (["/usr/bin/redis-server *:6379"], "/usr/bin/redis-check-rdb", []),
        (["p", "caf\ufffd"], "/srv/p", []),
        (["p"], None, []),
        ([], "/srv/p", []),
    ],
)
def test_words_that_start_a_program(arguments: list[str], exe: str | None, words: list[str]) -> None:
    """Check that a start command has the program's file and its own arguments, and none if the program wrote a title
    over them."""
    assert command_words(arguments, exe) == words


def test_link_by_which_it_was_executed(tmp_path: Path) -> None:
    """Check that a virtual environment's link to an interpreter is kept, since its file alone would lose the
    packages. Another link, such as a script, is not."""
    link, other = tmp_path / "python", tmp_path / "other"
    link.symlink_to(sys.executable)
    other.symlink_to(tmp_path)
    exe = os.path.realpath(sys.executable)
    assert command_words(["python", "x.py"], exe, str(link)) == [str(link), "x.py"]
    assert command_words([str(link), "x.py"], exe, str(other)) == [str(link), "x.py"]
    assert command_words(["python", "x.py"], exe, str(other)) == [exe, "x.py"]


def test_traced_as_it_was_started(tmp_path: Path) -> None:
    """Check that a shell splits the line into the program's own arguments, whatever they contain.

    A line that is too long to copy is not offered.
    """
    shell = shutil.which("sh")
    assert shell is not None
    for more, is_offered in ((ODD, True), (["x" * MAX_LINE], False)):
        command = [sys.executable, "-c", WAITS, *more]
        with running(command, tmp_path) as target, heap_of(str(target.pid)) as heap:
            lines = Evidence(heap, {}).measuring()
            heap.disclosure.contents = False
            assert Evidence(heap, {}).measuring() == []
        assert bool(lines) == is_offered
        if is_offered:
            script = f"gdbheap() {{ printf '%s\\0' \"$@\"; }}\n{lines[0]}"
            words = subprocess.run([shell, "-c", script], check=True, capture_output=True, text=True).stdout.split("\0")
            assert words[:4] == ["trace", "-o", "calls.log", "--"] and words[5:-1] == ["-c", WAITS, *more]
            assert os.path.realpath(words[4]) == os.path.realpath(sys.executable) and "#" not in lines[0]


BECOMES = "import os, sys; os.setresuid(*map(int, sys.argv[1:])); sys.stdin.readline()"


@needs_root
@pytest.mark.parametrize("users", [(STRANGER, STRANGER, STRANGER), (STRANGER, 0, 0), (0, 0, STRANGER)])
def test_no_line_starts_another_user_s_program(users: tuple[int, int, int], tmp_path: Path) -> None:
    """Check that no line is offered that would run another user's arguments with root's rights."""
    for words, is_offered in (((0, 0, 0), True), (users, False)):
        command = [sys.executable, "-c", BECOMES, *map(str, words)]
        with running(command, tmp_path) as target, heap_of(str(target.pid)) as heap:
            check_words(Evidence(heap, {}).measuring(), "setresuid", is_offered)


def check_words(lines: list[str], word: str, are_its: bool) -> None:
    """Check that a line has the program's own arguments, or a placeholder for a command."""
    assert (word in lines[0]) == are_its
    assert are_its or lines[0] == "gdbheap trace -o calls.log -- COMMAND"


LESS = {
    "namespaces": ["unshare", "-muni"],
    "mounts": ["unshare", "-m"],
    "network": ["unshare", "-n"],
    "children's processes": ["unshare", "-p"],
    "user namespace": ["unshare", "-Ur"],
    "no new privileges": ["setpriv", "--no-new-privs"],
    "no capability": ["setpriv", "--bounding-set=-all", "--inh-caps=-all"],
    "one capability less": ["setpriv", "--bounding-set=-sys_module"],
    "another group": ["setpriv", "--regid=1", "--clear-groups"],
}


@needs_root
@pytest.mark.parametrize("kind", [*LESS, "chroot", "filter"])
def test_no_line_starts_what_may_less(kind: str, tmp_path: Path) -> None:
    """Check that the arguments of a process in a container or sandbox are not printed: started outside, they could do
    what is forbidden inside.
    """
    command = [sys.executable, str(SOURCES / "rights.py"), kind, str(tmp_path)]
    with running(command if kind not in LESS else [*LESS[kind], *command], tmp_path) as target:
        assert "Uid:\t0\t0\t0\t0" in Path(f"/proc/{target.pid}/status").read_text()
        assert not has_our_rights(str(target.pid))
        if kind in ("namespaces", "no capability"):
            with heap_of(str(target.pid)) as heap:
                check_words(Evidence(heap, {}).measuring(), "rights.py", False)


@needs_root
def test_no_line_starts_the_first_process_of_a_namespace() -> None:
    """Check that the first process of a namespace has no such line, as its process ids are others."""
    with subprocess.Popen(["unshare", "-pf", "--kill-child", "sleep", str(10 * PATIENCE)]) as above:
        try:
            found, limit = "", time.monotonic() + PATIENCE
            while not found and time.monotonic() < limit:
                found = Path(f"/proc/{above.pid}/task/{above.pid}/children").read_text().strip()
            assert found and not has_our_rights(found) and not has_our_rights(str(above.pid))
        finally:
            above.kill()


def test_our_rights(tmp_path: Path) -> None:
    """Check processes that gdbheap started, gdbheap itself, and a process that does not exist."""
    with running([sys.executable, str(SOURCES / "rights.py"), "none", str(tmp_path)], tmp_path) as target:
        assert has_our_rights(str(target.pid)) and has_our_rights("self")
    assert not has_our_rights(str(target.pid)) and not has_our_rights(None)


def is_roots(status: Path) -> bool:
    """Return whether the program that becomes root's is running as root."""
    text = status.read_text()
    return text.startswith("Name:\tprogram\n") and "Uid:\t0\t0\t0\t0" in text


@needs_root
def test_no_line_starts_words_for_a_setuid_program() -> None:
    """Check that no line is offered for a setuid program, whose arguments are its starter's."""
    with place(0o755) as folder:
        program = folder / "program"
        shutil.copy(build("becomes_root"), program)
        program.chmod(0o4755)
        become = ["setpriv", f"--reuid={STRANGER}", f"--regid={STRANGER}", "--clear-groups"]
        started = subprocess.Popen([*become, str(program), "words"])
        try:
            status, limit = Path(f"/proc/{started.pid}/status"), time.monotonic() + PATIENCE
            while not is_roots(status) and started.poll() is None and time.monotonic() < limit:
                time.sleep(0.01)
            assert is_roots(status) and not has_our_rights(str(started.pid))
        finally:
            started.kill()
            started.wait()


def test_folder_of_a_script(tmp_path: Path) -> None:
    """Check that a comment names the working folder of the program, where its script is."""
    code = "import os, sys; os.chdir(sys.argv[1]); sys.stdin.readline()"
    (tmp_path / "app.py").touch()
    with running([sys.executable, "-c", code, str(tmp_path), "app.py"], tmp_path) as target:
        with heap_of(str(target.pid)) as heap:
            assert Evidence(heap, {}).measuring()[0].endswith(f" app.py  # in {shlex.quote(str(tmp_path))}")


def target_of(pid: int) -> Any:
    """Return the values of a target that a runtime's commands need."""
    return SimpleNamespace(kind="process", pid=pid, proc=str(pid))


def test_network_of_a_process(tmp_path: Path) -> None:
    """Check that a process with a network of its own is told from one with ours."""
    with running([sys.executable, "-c", WAITS], tmp_path) as target:
        assert runtimes._is_on_our_network(target.pid)
    command = ["unshare", "--user", "--map-root-user", "--net", sys.executable, "-c", WAITS]
    if subprocess.run([*command[:-2], "-c", ""], capture_output=True).returncode:
        pytest.skip("no network namespace can be made here")
    with running(command, tmp_path) as target:
        assert not runtimes._is_on_our_network(target.pid)


def test_profile_only_where_it_listens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that Go's profile is offered at an address at which the program listens, in our network, and only then."""
    go = Runtime(next(kind for kind in kinds() if kind.id == "go"), "", "")
    with running([sys.executable, "-c", WAITS], tmp_path) as target:
        assert listening(f"/proc/{target.pid}") == [] and go.commands(target_of(target.pid)) == []
    with socket.socket() as bound, socket.socket() as server:
        bound.bind(("127.0.0.1", 0))
        server.bind(("127.0.0.1", 0))
        server.listen()
        place = server.getsockname()
        found = listening(f"/proc/{os.getpid()}")
        assert place in found and bound.getsockname() not in found
        lines = go.commands(target_of(os.getpid()))
    assert len(lines) == 1 and lines[0].endswith("# where it serves net/http/pprof")
    assert any(f"http://{host}:{port}/" in lines[0] for host, port in found)
    monkeypatch.setattr(runtimes, "_is_on_our_network", lambda _process: False)
    assert go.commands(target_of(os.getpid())) == []
    assert Runtime(go.kind, "", "").commands(SimpleNamespace(kind="core", pid=1, proc=None)) == []  # type: ignore[arg-type]


def test_holes_that_are_listed(rng: random.Random, tmp_path: Path) -> None:
    """Check that the line has a minimum at which holes are listed if no hole has a megabyte.

    The blocks that keep pages are named by the global that leads to them.
    """
    count, size = rng.randrange(1500, 2500), rng.randrange(17 << 10, 40 << 10)
    with running(c_program("linked", count, 0, size), tmp_path) as target:
        (found,) = [row for row in ask("", str(target.pid))["findings"] if row["id"] == "free-chunks"]
        (line,) = [line for line in found["commands"] if " holes " in line]
        listed = gdbheap(*shlex.split(line)[1:]).stdout
        pins = ask("pins", str(target.pid), "--allocator=glibc")
    assert "--min=16K" in line and f"{count:,} holes" in listed.replace(f"{count - 1:,}", f"{count:,}")
    kind = max(pins["by_kind"], key=lambda row: row["blocks"])
    assert kind["what"].startswith("unknown") and kind["holder"].startswith("'head' in ")
