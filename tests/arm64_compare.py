"""Compare answers of the aarch64 machine (tests/arm64_answers.py) with those of this machine.

    .venv/bin/python tests/arm64_compare.py FOLDER SYSROOT

FOLDER has the answers and the cores; SYSROOT is the root folder of the machine's programs. The answers about each core
must be the same here. The names and sizes of a program's holders must be those of the same program on this machine,
if it has the same CPython.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from arm64_answers import HASHED, answers, programs
from support.programs import GCORE, KERNEL_CORE, PROCESS, ask, running

# Facts about the machine on which gdbheap runs, and about a core's file.
ELSEWHERE = {"target", "meanwhile", "took", "written", "sources"}


def differences(here: Any, there: Any, place: str = "") -> Iterator[str]:
    """Yield the places at which two documents differ."""
    if isinstance(here, dict) and isinstance(there, dict):
        for key in sorted(here.keys() | there.keys()):
            if key not in ELSEWHERE:
                yield from differences(here.get(key), there.get(key), f"{place}.{key}")
    elif isinstance(here, list) and isinstance(there, list) and len(here) == len(there):
        for number, (one, two) in enumerate(zip(here, there)):
            yield from differences(one, two, f"{place}[{number}]")
    elif here != there:
        yield f"{place}: {str(here)[:300]} here, {str(there)[:300]} there"


def holders(document: dict[str, Any]) -> dict[str, tuple[int, int]]:
    """Return (bytes, blocks) of each holder of the program's own, by its path."""
    own = (row for row in document["rows"] if "['__main__']" in row["path"] or "same_everywhere.py" in row["path"])
    return {row["path"]: (row["bytes"], row["blocks"]) for row in own}


def check_cores(folder: Path, sysroot: str, name: str, lines: tuple[str, ...]) -> list[str]:
    """Return the differences between the answers about a program's cores here and there."""
    found = []
    for form in (GCORE, KERNEL_CORE):
        there = json.loads((folder / f"{name}, {form}.json").read_text())
        here = answers(str(folder / f"{name}, {form}"), lines, "--sysroot", sysroot)
        found += [
            f"{name}, {form}, {line or 'heap'}{text}" for line in lines for text in differences(here[line], there[line])
        ]
    return found


def check_program(folder: Path) -> list[str]:
    """Return the differences between the same program here and there: holders, objects and findings."""
    command, _lines = programs(folder)["python"]
    there = json.loads((folder / f"python, {PROCESS}.json").read_text())
    with tempfile.TemporaryDirectory() as work, running(command, Path(work), HASHED) as target:
        target.rest_wholly()
        here = {noun: ask(noun, str(target.pid)) for noun in ("", "owners", "pyobjects")}
    found = [f"owners{text}" for text in differences(holders(here["owners"]), holders(there["owners"]))]
    pages = [
        {
            "findings": [row["id"] for row in answer[""]["findings"]],
            "holders": [row["path"] for row in answer[""]["holders"]],
        }
        for answer in (here, there)
    ]
    found += [f"heap{text}" for text in differences(*pages)]
    own = [
        {row["type"]: row["count"] for row in answer["pyobjects"]["rows"] if row["type"].startswith("__main__.")}
        for answer in (here, there)
    ]
    return found + [f"pyobjects{text}" for text in differences(*own)]


def main() -> int:
    """Print the differences; return whether there are any."""
    folder, sysroot = Path(sys.argv[1]), sys.argv[2]
    found = []
    with tempfile.TemporaryDirectory() as tables:
        for name, (_command, lines) in programs(Path(tables)).items():
            found += check_cores(folder, sysroot, name, lines)
    found += check_program(folder)
    print(*found, f"{len(found)} differences", sep="\n")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
