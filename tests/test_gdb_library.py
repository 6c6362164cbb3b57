"""The library in gdb's own Python: gdb's current target, valid during one stop."""

from __future__ import annotations

import json
from pathlib import Path

from support.gdb_side import batch, home, needs_gdb
from support.programs import KINDS, ask, python_program, running

pytestmark = needs_gdb
IMPORT = "python import gdbheap, json; heap = gdbheap.here()"
SHOW = "python print('said', json.dumps([heap.pid, heap.rss, [row.path for row in heap.holders()], repr(heap)]))"


def test_here(tmp_path: Path) -> None:
    """Check that the figures are those of the commands, for a process and a core, whether a command was used before
    or not."""
    with running(python_program(KINDS[0], "holders_of_many", 40_000, 1), tmp_path) as target:
        core, page = target.gcore(), ask("", str(target.pid))
        live = batch(["-p", str(target.pid)], [IMPORT, SHOW], home(tmp_path))
        dead = batch(["-core", str(core)], ["heap info", IMPORT, SHOW], home(tmp_path))
    holders = [row["path"] for row in page["holders"]]
    for done, name in ((live, f"process {target.pid}"), (dead, f"core {core}")):
        (said,) = [line for line in done.stdout.splitlines() if line.startswith("said ")]
        pid, rss, paths, title = json.loads(said.partition(" ")[2])
        assert pid == target.pid and paths == holders and name in title
        assert rss == page["rss"]["bytes"] or name.startswith("core")


def test_here_is_of_one_stop(tmp_path: Path) -> None:
    """Check that a heap of an earlier stop raises an error: it would mix two moments."""
    with running(python_program(KINDS[0], "growing", 10), tmp_path) as target:
        try_it = "python exec('try: heap.types()\\nexcept gdbheap.UsageError as error: print(error)')"
        commands = [IMPORT, "python print(heap.rss)", "set var *(char *)$sp = *(char *)$sp", try_it]
        commands += ["python print(gdbheap.here().rss)", "kill", "python gdbheap.here()"]
        done = batch(["-p", str(target.pid)], commands, home(tmp_path))
    assert f"process {target.pid} has run or changed since this stop" in done.stdout, done.stdout + done.stderr
    assert "gdb has no process and no core" in done.stderr
