"""Memory that only a function keeps that a program registered with the interpreter: the page names the registration."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from support.programs import ALL_RELEASES, RELEASES, ask, interpreter_of_release, running

# A program for Python 2 and 3. Only the function's closure has the rows.
PROGRAM = (
    "import atexit, codecs, os, signal, sys\n"
    "def rows(): return [bytes(bytearray(4000 + n % 9)) for n in range({count})]\n"
    "def made():\n"
    "    kept = rows()\n"
    "    def called(*arguments): return kept and None\n"
    "    return called\n"
    "{registering}\n"
    "sys.stdin.readline()\n"
)
# The registering call, its name on the page, and the first release with it whose tables have its place.
WAYS = {
    "sys.setprofile(made())": ("the function of sys.setprofile()", "2.7"),
    "sys.settrace(made())": ("the function of sys.settrace()", "2.7"),
    "codecs.register(made())": ("functions of codecs.register() [", "2.7"),
    "codecs.register_error('own', made())": ("handlers of codecs.register_error() [", "2.7"),
    "signal.signal(signal.SIGUSR1, made())": ("handler of signal.signal(SIGUSR1)", "2.7"),
    "signal.signal(40, made())": ("handler of signal.signal(", "2.7"),
    "os.register_at_fork(before=made())": ("functions of os.register_at_fork(before) [", "3.7"),
    "os.register_at_fork(after_in_child=made())": ("functions of os.register_at_fork(after_in_child) [", "3.7"),
    "atexit.register(made())": ("functions of atexit.register()", "3.7"),
    "atexit.register(int, rows())": ("arguments of atexit.register() [0]", "3.7"),
    "sys.addaudithook(made())": ("hooks of sys.addaudithook() [", "3.8"),
}
CASES = [
    (way, release) for way, (_name, first) in WAYS.items() for release in RELEASES
    if ALL_RELEASES.index(release) >= ALL_RELEASES.index(first)
    # No table has the place at which 3.14 and 3.15 keep it.
    and (release not in ("3.14", "3.15") or "set" in way or "signal" in way)
]  # fmt: skip


@pytest.mark.cases(12)
@pytest.mark.parametrize(("way", "release"), CASES)
def test_registered(way: str, release: str, rng: random.Random, tmp_path: Path) -> None:
    """Check that the first row names the registering call, with the bytes of the closure, or of the arguments."""
    count = rng.randrange(10_000, 12_000)
    code = PROGRAM.format(count=count, registering=way)
    with running([interpreter_of_release(release).executable, "-c", code], tmp_path) as target:
        row = ask("", str(target.pid))["holders"][0]
    assert row["path"].startswith(WAYS[way][0]), row["path"]
    assert count * 4000 <= row["bytes"] < 1.1 * count * 4000
    assert row["path"].endswith("cell_contents") or "arguments" in row["path"]


@pytest.mark.cases(3)
@pytest.mark.parametrize("release", RELEASES)
def test_added_to_builtins(release: str, rng: random.Random, tmp_path: Path) -> None:
    """Check that the page, 'owners' and 'retained' name a variable that the program added to the module builtins."""
    count = rng.randrange(10_000, 12_000)
    name = "__builtin__" if release == "2.7" else "builtins"
    code = (
        f"import sys, {name}\n{name}.app_cache = [bytes(bytearray(4000 + n % 9)) for n in range({count})]\n"
        "sys.stdin.readline()\n"
    )
    with running([interpreter_of_release(release).executable, "-c", code], tmp_path) as target:
        rows = [ask(noun, str(target.pid))[key][0] for noun, key in (("", "holders"), ("owners", "rows"))]
        kept = ask("retained", str(target.pid))["rows"][0]
    for row in rows:
        assert name in row["path"] and row["path"].endswith(".app_cache"), row["path"]
        assert count * 4000 <= row["bytes"] < 1.1 * count * 4000
    assert kept["path"] == rows[1]["path"] and kept["retained"] == pytest.approx(rows[0]["bytes"], rel=0.01)
