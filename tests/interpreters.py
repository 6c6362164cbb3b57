"""Make the table of docs/interpreters.md: test_oracle_versions.py's comparisons for every CPython found here.

The comparisons include every object. ``python tests/interpreters.py --write`` writes the page; without it the lines are
printed.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import tempfile
from pathlib import Path

from conftest import ROOT, SEED
from support.closures import reached_in_heaps, same
from support.library import heap_of
from support.pool_figures import answered, referenced, told
from support.populations import census
from support.programs import RELEASES, Interpreter, ask, entered, interpreters, running
from tabulate import tabulate

from gdbheap.answers.at import at

PAGE = ROOT / "docs" / "interpreters.md"
MARK = "<!-- the table: python tests/interpreters.py --write -->\n"
HEADERS = ["CPython", "build", "size classes", "objects reached", "right type", "wrong type", "missed"]
VERSION = "import sys; sys.stdout.write('%d.%d.%d' % sys.version_info[:3])"
SOURCES = Path(__file__).resolve().parent / "programs"
MODES = {"with debug hooks": "pymalloc_debug", "without pymalloc": "malloc"}
HEADERS += MODES


def program(interpreter: Interpreter, name: str, *arguments: object) -> list[str]:
    """Return the command that runs tests/programs/NAME.py."""
    return [interpreter.executable, "-s", str(SOURCES / f"{name}.py"), *map(str, arguments)]


def pools(interpreter: Interpreter, rng: random.Random, folder: Path) -> str:
    """Return how many size classes agree in all figures with the interpreter's own (for 2.7: with a walker's)."""
    with running(program(interpreter, "pools", rng.getrandbits(32), 40_000), folder) as target:
        found = answered(ask("pools", str(target.pid)))
        truth = told(target.stderr)["classes"] if target.stderr else referenced(target.pid)
    right = sum(found["classes"].get(size) == row for size, row in truth.items())
    return f"{right} of {len(found['classes'].keys() | truth.keys())}"


def objects(
    interpreter: Interpreter, rng: random.Random, folder: Path, environment: dict[str, str]
) -> tuple[int, int, int, int]:
    """Return three numbers of reachable objects in the heaps: those with the right type, with a wrong one, and without
    one."""
    truth = folder / "truth"
    with running(program(interpreter, "closure", rng.getrandbits(32), 4000, truth), folder, environment) as target:
        reached = reached_in_heaps(target.pid, truth)
        assert census(str(target.pid))
        with heap_of(str(target.pid)) as heap:
            found = {address: at(heap, address).object for address in reached}
    truth.unlink()
    right = sum(same(found[a], a, name) for a, name in reached.items())
    none = sum(thing is None for thing in found.values())
    return len(reached), right, len(reached) - right - none, none


def row(interpreter: Interpreter, release: str, rng: random.Random) -> list[object]:
    """Return one line of the table."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        reached, right, wrong, none = objects(interpreter, rng, folder, {})
        others = [] if release == "2.7" else [{"PYTHONMALLOC": mode} for mode in MODES.values()]
        found = [objects(interpreter, rng, folder, environment) for environment in others]
        classes = pools(interpreter, rng, folder)
    shares = [f"{right:,} of {reached:,}" for reached, right, _wrong, _none in found] or ["does not exist"] * len(MODES)
    return [version(interpreter), interpreter.kind, classes, f"{reached:,}", f"{right:,}", wrong, none, *shares]


def version(interpreter: Interpreter) -> str:
    """Return the version that the interpreter itself prints."""
    command = entered([interpreter.executable, "-c", VERSION])
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def main() -> None:
    """Print the table, or write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--json", action="store_true", help="print a list of {header: cell}")
    options = parser.parse_args()
    rng = random.Random(SEED)
    rows = [row(found, release, rng) for release in RELEASES for found in interpreters(release)]
    if options.json:
        print(json.dumps([dict(zip(HEADERS, map(str, cells))) for cells in rows]))
        return
    align = ["left", "left"] + ["right"] * (len(HEADERS) - 2)
    text = tabulate(rows, HEADERS, tablefmt="github", disable_numparse=True, colalign=align)
    if not options.write:
        print(text)
        return
    before = PAGE.read_text().split(MARK)[0]
    PAGE.write_text(f"{before}{MARK}{text}\n")


if __name__ == "__main__":
    main()
