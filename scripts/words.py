"""Count the words of scripts/words.txt in texts for people: help, messages, documentation, docstrings, comments.

Each room (a top folder, or a folder of the product) has a budget in scripts/words_budget.txt, which only falls: with
more words the script fails; with fewer, --write stores the new numbers. --list ROOM shows their places.

Usage: words.py [--write] [--list ROOM]
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
WORDS, BUDGET = (ROOT / "scripts" / name for name in ("words.txt", "words_budget.txt"))
READ = {".py", ".rs", ".md", ".toml", ".sh", ".c", ".h", ".css", ".js", ".yaml", ".service"}
# Files that are not counted: the list of the words itself, and historical records.
APART = (
    "scripts/words",
    "CHANGELOG.md",
    "docs/naming.md",
    "docs/holders.md",
    "docs/public-reports.md",
    "tests/programs/",
    "tests/reports/",
)
# A sentence may continue on the next line, after the start of a comment line or of a joined string.
BREAK = re.compile(r"""['"]?\s*\n\s*(?:#|//[/!]?|\*)?\s*f?['"]?""")
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
# Folders whose rooms count separately.
HOUSES = {"gdbheap", "native"}


@cache
def rules() -> list[tuple[re.Pattern[str], str]]:
    """Return the patterns and their replacements."""
    lines = [line for line in WORDS.read_text().splitlines() if line and not line.startswith("#")]
    pairs = [re.split(r"\s{2,}", line, maxsplit=1) for line in lines]
    return [(re.compile(pattern.lower().replace(" ", r"\s+")), better) for pattern, better in pairs]


def files() -> Iterator[Path]:
    """Yield the files of the repository that people read."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True, text=True).stdout
    for name in filter(None, listed.split("\0")):
        path = ROOT / name
        if path.suffix in READ and not name.startswith(APART) and path.is_file():
            yield path


def room_of(name: str) -> str:
    """Return the room of a file: its top folder, or in HOUSES the folder below it."""
    parts = name.split("/")
    if len(parts) == 1:
        return "."
    return "/".join(parts[: 2 if parts[0] in HOUSES and len(parts) > 2 else 1])


def found(text: str) -> Iterator[tuple[int, str, str]]:
    """Yield the line, the words and the replacement of each match in a text; a match may extend over two lines."""
    flat = BREAK.sub(lambda gap: " " * len(gap[0]), text).lower()
    for pattern, better in rules():
        for hit in pattern.finditer(flat):
            yield text.count("\n", 0, hit.start()) + 1, " ".join(hit[0].split()), better


def main() -> int:
    """Return 1 if a room exceeds its budget, or if a file has forbidden characters."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="put the numbers that fell into the budget")
    parser.add_argument("--list", metavar="ROOM", help="show where the words of a room stand")
    options = parser.parse_args()
    counts: Counter[str] = Counter()
    for path in files():
        name = str(path.relative_to(ROOT))
        text = path.read_bytes().decode(errors="replace")
        if CONTROL.search(text):
            print(f"words: {name} has a control character other than a tab or the end of a line")
            return 1
        for line, words, better in found(text):
            counts[room_of(name)] += 1
            if options.list == room_of(name):
                print(f"{name}:{line}: {words} -> {better}")
    lines = BUDGET.read_text().splitlines() if BUDGET.exists() else []
    budget = {room: int(number) for room, number in (line.split() for line in lines)}
    over = {
        room: (number, budget.get(room, 0)) for room, number in sorted(counts.items()) if number > budget.get(room, 0)
    }
    if options.write:
        lower = {room: min(number, budget.get(room, number)) for room, number in sorted(counts.items())}
        BUDGET.write_text("".join(f"{room} {number}\n" for room, number in lower.items() if number))
    for room, (number, allowed) in over.items():
        print(f"words: {room} has {number} of the words in scripts/words.txt, {allowed} are allowed (--list {room})")
    return 1 if over and not options.write else 0


if __name__ == "__main__":
    sys.exit(main())
