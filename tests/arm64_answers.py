"""Ask gdbheap about programs and about their cores, and keep cores and answers in a folder.

    python3 tests/arm64_answers.py FOLDER

The aarch64 machine runs this (tests/arm64_job.sh). Elsewhere, tests/arm64_compare.py compares the answers with those
about the same cores, and about the same programs.
"""

from __future__ import annotations

import json
import random
import sys
import tempfile
from pathlib import Path
from typing import Any

from support.programs import GCORE, KERNEL_CORE, PROCESS, SOURCES, ask, c_program, running

SEED = 20_261_130
# The commands whose answers are compared, with the number of rows of those that list blocks.
NATIVE = ("", "arenas", "check", "chunks --top=300", "holes --min=4K", "map", "pins", "sizes", "threads", "trim")
PYTHON = (
    *NATIVE, "duplicates", "owners", "pools", "pyobjects", "retained --top=200", "unreachable",
    "pyobjects --list --type=__main__.Order --top=300",
)  # fmt: skip
HASHED = {"PYTHONHASHSEED": "0"}


def programs(folder: Path) -> dict[str, tuple[list[str], tuple[str, ...]]]:
    """Return the command of each program, and the commands to ask about it."""
    return {
        "python": (["/usr/bin/python3", str(SOURCES / "same_everywhere.py")], PYTHON),
        "recorder": (c_program("recorder", 8, SEED, 60_000, 4000, 200_000, 0, folder / "table"), NATIVE),
        "trim": (c_program("trim", SEED, 5, 6000, 600, 200_000, 0), NATIVE),
    }


def answers(target: str, lines: tuple[str, ...], *more: str) -> dict[str, Any]:
    """Return the answer to each line. ``more``: options for all lines."""
    found = {}
    for line in lines:
        noun, _, options = line.partition(" ")
        found[line] = ask(noun, target, *options.split(), *more)
        print(f"  {line or 'heap'}", flush=True)
    return found


def examine(name: str, command: list[str], lines: tuple[str, ...], folder: Path) -> None:
    """Keep the answers about a process, a core by gdb and a core by the kernel, and both cores."""
    # Another file system would fill the holes of a core that is moved there.
    with tempfile.TemporaryDirectory(dir=folder) as work, running(command, Path(work), HASHED) as target:
        target.rest_wholly()
        for form in (PROCESS, GCORE, KERNEL_CORE):
            print(f"{name}, {form}", flush=True)
            where = target.as_form(form)
            found = answers(where, lines)
            (folder / f"{name}, {form}.json").write_text(json.dumps(found))
            if form != PROCESS:
                Path(where).rename(folder / f"{name}, {form}")


def main() -> None:
    """Examine all programs."""
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    random.seed(SEED)
    with tempfile.TemporaryDirectory() as tables:
        for name, (command, lines) in programs(Path(tables)).items():
            examine(name, command, lines, folder)


if __name__ == "__main__":
    main()
