"""Make the interpreters' table of docs/support.md: the tests' own oracles, on the interpreters of each root folder.

scripts/matrix.sh makes the folders and runs this. Each interpreter runs inside its folder, gdbheap outside. So a core
lacks the files of its process, except for ``--exe``.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from pathlib import Path

from conftest import SEED
from matrix import AARCH64, INTERPRETERS
from support.programs import ALL_RELEASES, interpreters
from tabulate import tabulate

TESTS = Path(__file__).resolve().parent
FIGURES = ["size classes", "objects reached", "wrong type", "missed", "with debug hooks"]
# The subject of each test file, and the first release whose language its programs use.
FILES = {
    "versions": "2.7",
    "free_lists": "2.7",
    "lost_names": "2.7",
    "repr": "3.8",
    "instances": "3.8",
    "sizing": "3.8",
    "owners": "3.8",
    "modes": "3.6",
    "subinterpreters": "3.12",
    "paths": "2.7",
    "retained": "2.7",
    "unreachable": "2.7",
    "values": "3.6",
    "lines": "3.6",
    "tasks": "3.6",
}
# The files about references. They also run thoroughly on this system's own interpreters.
REFERENCES = ("paths", "retained", "unreachable")


def releases(root: Path) -> list[str]:
    """Return the releases that are installed in a root folder."""
    return [release for release in ALL_RELEASES if (root / "usr" / "bin" / f"python{release}").exists()]


def inside(root: Path | None, release: str) -> dict[str, str]:
    """Return the environment in which the tests examine this interpreter thoroughly."""
    chosen = {"GDBHEAP_RELEASE": release, "GDBHEAP_SEED": str(SEED), "GDBHEAP_THOROUGH": "yes"}
    return {**os.environ, **chosen, "GDBHEAP_ROOT": str(root or "")}


def figures(root: Path, release: str) -> dict[str, str]:
    """Return a line of the table of docs/interpreters.md."""
    command = [sys.executable, str(TESTS / "interpreters.py"), "--json"]
    done = subprocess.run(command, env=inside(root, release), capture_output=True, text=True)
    if done.returncode:
        print(done.stderr[-3000:], file=sys.stderr)
        return {}
    (found,) = json.loads(done.stdout)
    return dict(found)


def cell(root: Path | None, release: str, name: str) -> str:
    """Return "exact" with the number of cases if all cases of a test file agreed.

    Cases that did not agree are printed on standard error.
    """
    if ALL_RELEASES.index(release) < ALL_RELEASES.index(FILES[name]):
        return "not run"
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report"
        command = [sys.executable, "-m", "pytest", "-q", "--tb=short", f"--junitxml={report}"]
        done = subprocess.run(
            [*command, str(TESTS / f"test_oracle_{name}.py")], env=inside(root, release), capture_output=True, text=True
        )
        cases = list(ElementTree.parse(report).getroot().iter("testcase"))
    ran = [case for case in cases if case.find("skipped") is None]
    if done.returncode or not ran:
        print(done.stdout[-6000:], file=sys.stderr)
        return "failed"
    return f"exact ({len(ran)})"


def row(suite: str, root: Path, release: str) -> list[str]:
    """Return one line of the table."""
    found = figures(root, release)
    cells = [suite, found.get("CPython", release)]
    cells += [found.get(name, "failed") for name in FIGURES]
    return cells + [told(suite, root, release, name) for name in FILES]


def own_row(release: str) -> list[str]:
    """Return one line of the table of this system's interpreters."""
    return [release, *(told("this system", None, release, name) for name in REFERENCES)]


def told(suite: str, root: Path | None, release: str, name: str) -> str:
    """Return a cell, and print it on standard error."""
    found = cell(root, release, name)
    print(f"{suite:12} {release:8} {name:12} {found}", file=sys.stderr, flush=True)
    return found


def main() -> int:
    """Write the table. Return 1 if a cell failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, required=True, help="where the root folders are")
    parser.add_argument("--output", type=Path, required=True, help="the page, whose end is written anew")
    parser.add_argument("suites", nargs="+")
    options = parser.parse_args()
    print(f"random seed: {SEED} (repeat with GDBHEAP_SEED={SEED})", file=sys.stderr)
    folders = [(suite, options.folder / suite) for suite in options.suites]
    rows = [row(suite, root, release) for suite, root in folders for release in releases(root)]
    headers = ["suite", "CPython", *FIGURES, *(name.replace("_", " ") for name in FILES)]
    align = ["left", "left"] + ["right"] * len(FIGURES) + ["left"] * len(FILES)
    own = [own_row(release) for release in ALL_RELEASES if interpreters(release)]
    text = tabulate(rows, headers, tablefmt="github", disable_numparse=True, colalign=align)
    own_text = tabulate(own, ["CPython", *REFERENCES], tablefmt="github", disable_numparse=True)
    if options.output.is_file():
        before, _, after = options.output.read_text(encoding="utf-8").partition(INTERPRETERS)
        kept = "".join(after.partition(AARCH64)[1:])
        own_part = f"{INTERPRETERS}{TEXT.format(grid=text, own=own_text)}"
        options.output.write_text(f"{before}{own_part}" + (f"\n{kept}" if kept else ""), encoding="utf-8")
    else:
        print(text, own_text, sep="\n\n")
    return int(any("failed" in cells for cells in rows + own))


TEXT = """
The interpreters are each suite's own packages, stripped and without debug symbols. They run in the suite's root folder,
and gdbheap reads them from outside of the folder. [interpreters.md](interpreters.md) explains the columns "size
classes" to "with debug hooks". Each of the other columns shows the result of one test; the column's name is in the name
of the test's file (`tests/test_oracle_*.py`). `make test` runs the same tests on this system's interpreters. `exact`
means that gdbheap's answer was correct in every case; the number of cases follows. A core that the kernel writes
contains neither code nor read-only data. `--exe` names the folder in which gdbheap then finds the program's files. The
test "lost names" runs without `--exe`. `not run` means that this Python does not have the tested feature yet, or that
the test's programs need a later Python.

{grid}

"paths": the test builds structures of several kinds, among them lists and links a million deep. It picks a hundred
random objects of each kind. For each object, `heap why` gives an expression. If the program evaluates the expression,
it gets that object. "retained": the test builds random graphs of up to 10,000 objects. Each object retains exactly the
objects that no root reaches without it. "unreachable": the answer has exactly the cycles and leaks that the test has
made. "values": the program counts equal objects, instances by an attribute, and the room in its containers, and the
answers equal these counts. "lines": the answer equals tracemalloc's own snapshot. "tasks": the answer has the tasks of
asyncio's own list, and the place where each waits. The next table shows "paths", "retained" and "unreachable" on the
interpreters of the system on which `make matrix` ran:

{own}

[interpreters.md](interpreters.md) explains how gdbheap names types without any file of the process, and what the tests
compare. `make matrix PARTS=interpreters` runs this part alone.
"""


if __name__ == "__main__":
    sys.exit(main())
