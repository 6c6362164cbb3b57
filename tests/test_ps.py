"""gdbheap ps against ps_mem, and the names of programs."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support import kernel
from support.installed import python_with
from support.programs import GDBHEAP, PATIENCE, c_program, gdbheap, interpreter_of, running

from gdbheap.commands.surface.registry import COMMANDS
from gdbheap.processes import accounts
from gdbheap.processes.programs import is_python, summed
from gdbheap.report.text.style import Style
from gdbheap.report.words.ps import render

SCRIPT = "import signal,sys\nkept = bytearray(int(sys.argv[1]))\nfor at in range(0, len(kept), 4096): kept[at] = 1\n"
TRIES = 200


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[int]]:
    """Start three Pythons with two scripts between them, and two of a program in C."""
    folder = tmp_path_factory.mktemp("ps")
    for name in ("one.py", "other.py"):
        (folder / name).write_text(f"{SCRIPT}signal.pause()\n")
    commands = [
        [interpreter_of("stripped"), "-I", str(folder / name), str(random.randrange(1 << 16, 1 << 22))]
        for name in ("one.py", "one.py", "other.py")
    ]
    commands += [c_program("idle")] * 2
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(running(command, folder)).pid for command in commands]


def other_program() -> Any:
    """Return ps_mem as a module: one file, which changes how Python reports errors."""
    command = [python_with("ps_mem"), "-c", "import importlib.util as u; print(u.find_spec('ps_mem').origin)"]
    path = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    spec = importlib.util.spec_from_file_location("ps_mem", path)
    assert spec is not None and spec.loader is not None
    module, hook = importlib.util.module_from_spec(spec), sys.excepthook
    try:
        spec.loader.exec_module(module)
    finally:
        sys.excepthook = hook
    return module


def test_the_figures_of_ps_mem(programs: list[int]) -> None:
    """Check private, shared, RAM and swap of each program, to the byte, and its number of processes; read in one
    process, at a moment at which no other program with the same libraries starts or ends: both say the same twice, in
    turn."""
    ps_mem = other_program()
    everyone = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    for _ in range(TRIES):
        before = accounts.by_program(row for row in accounts.read(everyone) if row.pid in programs)
        theirs = ps_mem.get_memory_usage(programs, False, False)
        after = accounts.by_program(row for row in accounts.read(everyone) if row.pid in programs)
        if before == after and theirs == ps_mem.get_memory_usage(programs, False, False):
            break
    else:
        pytest.skip("other processes kept the machine busy")
    ours: dict[str, list[float]] = {}
    for row in before.rows:
        sums = ours.setdefault(row.name, [0, 0, 0, 0])
        for place, size in enumerate((row.ram / 1024, row.shared / 1024, row.swapped / 1024, row.count)):
            sums[place] += size
    rams, shareds, counts, total, swaps, swapped = theirs
    expected = {name: [ram, shareds[name], swaps[name], counts[name]] for name, ram in rams}
    assert ours == expected
    assert before.total.ram / 1024 == total and before.total.swapped / 1024 == swapped
    assert before.total.private + before.total.shared == before.total.ram


def test_one_line_a_program(programs: list[int]) -> None:
    """Check that a Python program is named by its script, with its processes; --filter and --top leave out rows, the
    total stays."""
    found = json.loads(gdbheap("ps", "--json").stdout)
    assert found["command"] == "gdbheap ps"
    rows = {(row["script"]): row for row in found["rows"] if set(row["pids"]) & set(programs)}
    assert sorted(rows["one.py"]["pids"]) == sorted(programs[:2]) and rows["one.py"]["count"] == 2
    assert rows["other.py"]["pids"] == programs[2:3] and rows[None]["name"] == "idle"
    only = json.loads(gdbheap("ps", "--filter=^(one|other)[.]py$", "--json").stdout)
    assert {row["script"] for row in only["rows"]} == {"one.py", "other.py"}
    assert only["total"]["ram"] == sum(row["ram"] for row in only["rows"])
    text = gdbheap("ps", "--filter=one.py|other.py", "--top=1").stdout
    assert "one.py (2)" in text and "1 more program" in text


def running_programs() -> accounts.ProgramTable:
    """Return the programs that run now."""
    return accounts.by_program(accounts.read([int(name) for name in os.listdir("/proc") if name.isdigit()]))


def test_the_same_without_a_parser() -> None:
    """Check that the line without options needs few modules: its sums and text are those of the command, without
    imports of regular expressions or dataclasses."""
    rows = accounts.read([int(name) for name in os.listdir("/proc") if name.isdigit()])
    quick, whole = summed(rows), accounts.by_program(rows)
    assert render(quick, 0, False, Style()) == render(whole, 0, False, Style())
    command = COMMANDS["ps"]
    assert command.top is None and next(iter(command.sorts)) == "ram"
    script = GDBHEAP.parent / "gdbheap-python"
    listed = subprocess.run([sys.executable, "-X", "importtime", script, "ps"], capture_output=True, text=True)
    imported = {line.rpartition("|")[2].strip() for line in listed.stderr.splitlines()}
    assert "gdbheap.processes.programs" in imported
    # The name of a process may have characters that regular expressions must find, as in other tests.
    names = [program.name for program in [*whole.rows, *running_programs().rows]]
    are_plain = all(name.isprintable() and name.isascii() for name in names)
    assert not imported & {"argparse", "dataclasses", "enum", "inspect", "re", "typing"} or not are_plain


def test_is_python(rng: random.Random) -> None:
    """Check names of programs against the regular expression for Python's names."""
    expected, starts = re.compile(r"python[0-9.]*[a-z]?|pypy[0-9.]*"), ["python", "pypy", "pytho", "xpython", ""]
    for _ in range(2000):
        name = rng.choice(starts) + "".join(rng.choices("3.1dm\né-", k=rng.randrange(5)))
        assert is_python(name) == bool(expected.fullmatch(name)), name


def test_with_heaps(programs: list[int]) -> None:
    """Check each program with the sums of its processes' heaps: the bytes in use are at least those that the scripts
    keep."""
    found = json.loads(gdbheap("ps", "--filter=^one.py$", "--heap", "--json").stdout)
    (row,) = (row for row in found["rows"] if set(row["pids"]) & set(programs))
    kept = sum(int(Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[3]) for pid in programs[:2])
    assert row["heap"]["looked"] == 2
    resident = sum(kernel.rollup(pid)[0] for pid in programs[:2])
    assert kept <= row["heap"]["in_use"] <= resident - row["heap"]["free"]
    assert 0 <= row["heap"]["reclaimable"] <= row["heap"]["free"]


def test_without_permission(programs: list[int]) -> None:
    """Check that other users' processes are counted, and that the rest is answered."""
    if os.getuid():
        pytest.skip("needs root to become another user")
    code = (
        "import os,sys;os.setgroups([]);os.setgid(65534);os.setuid(65534)\n"
        "from gdbheap.processes import accounts\n"
        "table = accounts.by_program(accounts.read())\n"
        "print(table.refused, len(table.rows))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd="/")
    assert done.returncode == 0, done.stderr
    assert int(done.stdout.split()[0]) >= len(programs)


def account(command: str, exe: str = "/usr/bin/python3.11", **known: Any) -> Any:
    """Return the figures that are read of a process; ``|`` separates the arguments of its command."""
    words = b"".join(word.encode() + b"\0" for word in command.split("|"))
    row = {"pid": 7, "parent": 1, "name": b"python3.11", "exe": exe.encode(), "command": words, **known}
    return SimpleNamespace(**row)


@pytest.mark.parametrize(
    ("command", "script"),
    [
        ("python3|app.py", "app.py"),
        ("python3|/srv/app.py|-m|x", "app.py"),
        ("/usr/bin/python3.11|-u|-W|error|app.py", "app.py"),
        ("python3|-Werror|-X|dev|app.py", "app.py"),
        ("python3|-m|http.server|80", "-m http.server"),
        ("python3|-um|gunicorn", "-m gunicorn"),
        ("python3|-mgunicorn", "-m gunicorn"),
        ("python3|-Ic|import time", "-c"),
        ("python3|--check-hash-based-pycs|always|app.py", "app.py"),
        ("python3|-", "-"),
        ("python3", None),
        ("python3|-i", None),
        ("gunicorn: worker [app]", "gunicorn: worker [app]"),
        ("", None),
        ("python3|-c", "-c"),
        ("python3|-m", "-m "),
    ],
)
def test_scripts(command: str, script: str | None) -> None:
    """Check the script of a Python process, by its command line."""
    assert accounts.script_of(account(command), "python3.11") == script
    assert accounts.script_of(account(command), "bash") is None


@pytest.mark.parametrize(
    ("known", "name"),
    [
        ({}, "python3.11"),
        ({"name": b"gunicorn"}, "gunicorn"),
        ({"name": b"worker", "parent": 5}, "python3.11"),
        ({"exe": "/gone/python3.11 (deleted)"}, "python3.11 [deleted]"),
        ({"exe": f"{sys.executable} (deleted)", "name": os.path.basename(sys.executable)[:15].encode()}, None),
    ],
)
def test_names(known: dict[str, Any], name: str | None) -> None:
    """Check names as in ps_mem: by the program, by another name, like the parent, deleted, replaced."""
    row = account("x", **known)
    programs = {5: "python3.11", 7: accounts.program_of(row)}
    expected = f"{os.path.basename(sys.executable)} [updated]" if name is None else name
    assert accounts.name_of(row, programs) == expected


def test_hostile_names(tmp_path: Path) -> None:
    """Check that a process with any command line is one row, on one line."""
    script = tmp_path / "na\x1b[31mme\n.py"
    script.write_text("import signal\nsignal.pause()\n")
    with running([interpreter_of("stripped"), "-I", str(script)], tmp_path) as process:
        found = json.loads(gdbheap("ps", "--json").stdout)
        (row,) = (row for row in found["rows"] if process.pid in row["pids"])
        assert row["script"] == script.name
        text = gdbheap("ps", f"--filter={re.escape(script.name)}").stdout
    first, *lines = text.splitlines()
    assert "\x1b" not in text and "me" in first and sum("me" in line and "31m" in line for line in lines) == 1


def test_recorded_folder(tmp_path: Path) -> None:
    """Check a folder mounted like proc: kernel threads and zombies are left out, so is a vanished process, and
    garbage is no size."""
    rows = {
        "1": ("Name:\tinit\nPPid:\t0\nVmRSS:\t8 kB\n", "Rss: 8 kB\nPss: 3 kB\nPrivate_Dirty: 1 kB\nSwapPss: 2 kB\n"),
        "2": ("Name:\tkthreadd\nPPid:\t0\n", ""),
        "3": ("Name:\todd\nPPid:\tx\nVmRSS:\t1 kB\n", "Rss: many kB\nPss: 99999999999999999999999 kB\n\0\xff"),
        "4": ("", ""),
        "x": ("Name:\tx\nVmRSS:\t8 kB\n", ""),
    }
    for name, (status, rollup) in rows.items():
        folder = tmp_path / name
        folder.mkdir()
        (folder / "status").write_text(status)
        (folder / "smaps_rollup").write_bytes(rollup.encode("latin-1"))
        (folder / "cmdline").write_bytes(b"init\0")
        (folder / "exe").symlink_to("/sbin/init")
    found = accounts.read(proc=str(tmp_path))
    assert [(row.pid, row.parent) for row in found] == [(1, 0), (3, 0)]
    assert found[0].memory is not None and found[0].memory.pss == 3 << 10 and found[0].memory.swap_share == 2 << 10
    assert found[1].memory is not None and (found[1].memory.rss, found[1].memory.proportional) == (0, 0)


def test_what_ends_before_all_is_read(rng: random.Random) -> None:
    """Check a command that ends before its input is read, and Ctrl-C at any moment: one status, and no crash."""
    for words, status in [(["--help"], 0), (["--bogus"], 2)] * 10:
        assert gdbheap("ps", *words).returncode == status
    for _ in range(10):
        run = subprocess.Popen([str(GDBHEAP), "ps"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        time.sleep(rng.uniform(0.05, 0.4))
        run.send_signal(signal.SIGINT)
        _out, errors = run.communicate(timeout=PATIENCE)
        assert run.returncode in (0, 1, -signal.SIGINT), (run.returncode, errors)
        # Python itself prints its stack if the signal comes before its start is complete.
        in_start = run.returncode == -signal.SIGINT or errors.startswith("Fatal Python error: init")
        assert in_start or len(errors.splitlines()) <= 1, errors
