"""Commands about an address accept the paths that other answers print."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from support.gdb_side import compiled
from support.programs import ask, gdbheap, running

PROGRAM = """
import collections, sys, types
class Session:
    def __init__(self, n):
        self.rows = [bytes(1000 + n) for _ in range(400)]
def lines():
    kept = [b"%d" % n * 900 for n in range({count})]
    for one in kept:
        yield one
REGISTRY = {{n: Session(n) for n in range(6)}}
reading = lines()
next(reading)
queue = collections.deque(bytes(700) for _ in range({count}))
plugin = sys.modules["app.plugin"] = types.ModuleType("app.plugin")
plugin.cache = {{n: bytes(300 + n) for n in range({count})}}
print(flush=True)
sys.stdin.readline()
"""
LARGE = """
#include <stdio.h>
#include <stdlib.h>
struct engine {{ char **parts; }} *engine;
int main(void) {{
    engine = malloc(sizeof *engine);
    engine->parts = calloc({count}, sizeof *engine->parts);
    for (int i = 0; i < {count}; i++)
        engine->parts[i] = calloc(1, 500);
    puts("made");
    fflush(stdout);
    return getchar() == 1;
}}
"""


def printed(pid: str) -> Iterator[tuple[str, int]]:
    """Yield (path, address) of each object that the first page, owners and retained list with an address."""
    rows: list[dict[str, Any]] = ask("", pid)["holders"]
    for noun in ("owners", "retained"):
        rows += ask(noun, pid, "--top=12")["rows"]
    for row in rows:
        for one in (row, *row.get("same", ())):
            for key in ("path", "chain", "expression"):
                if one.get(key) and one["address"] is not None:
                    yield one[key], one["address"]


def test_printed_paths(rng: random.Random, tmp_path: Path) -> None:
    """Check that 'why' accepts each path that is printed for an object, and that it is about this object."""
    code = PROGRAM.format(count=rng.randrange(1500, 2500))
    with running([sys.executable, "-c", code], tmp_path) as target:
        pid = str(target.pid)
        names: dict[str, set[int]] = {}
        for path, address in printed(pid):
            names.setdefault(path, set()).add(address)
        assert any("REGISTRY" in path for path in names) and len(names) > 12
        for path in rng.sample(sorted(names), 10):
            assert ask("why", pid, path)["address"] in names[path], path
        # The last one is no variable.
        for name in ("REGISTRY", "reading", "app.plugin.cache", "app.plugin.none"):
            done = gdbheap(rng.choice(("why", "retained", "at", "refs")), pid, name)
            assert (done.returncode == 0) == (name != "app.plugin.none"), (name, done.stderr)


def test_static_variable(rng: random.Random, tmp_path: Path) -> None:
    """Check that the name of a static variable stands for the largest block that it reaches."""
    source = LARGE.format(count=rng.randrange(20_000, 30_000))
    with compiled(source, tmp_path) as program, running([str(program)], tmp_path) as target:
        pid = str(target.pid)
        (holder, *_others) = ask("", pid)["holders"]
        for name in (holder["path"], "engine"):
            assert "engine" in holder["path"] and gdbheap("why", pid, name).returncode == 0
        assert gdbheap("why", pid, "engines").returncode
