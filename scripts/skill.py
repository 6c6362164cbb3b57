"""Write the list of commands in commands/shell/mcp/SKILL.md, from their declarations; --llms prints the llms.txt.

Without an option the page is printed. Run it with the Python that gdbheap is installed in.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from gdbheap.commands.surface.registry import COMMANDS, grouped

ROOT = Path(__file__).resolve().parent.parent
FILE = ROOT / "commands" / "shell" / "mcp" / "SKILL.md"
LAST = "## Commands\n"
TITLE = re.compile(r"^# (.+)$", re.MULTILINE)
FRONT = re.compile(r"\A---\n.*?^---\n+", re.DOTALL | re.MULTILINE)


def skill() -> str:
    """Return the page with the present list."""
    text = FILE.read_text(encoding="utf-8")
    listed = "\n".join(grouped(COMMANDS, {}))
    return f"{text[: text.index(LAST)]}{LAST}`gdbheap NOUN --help` explains one.\n```\n{listed}\n```\n"


def llms() -> str:
    """Return llms.txt: a description of gdbheap, its use, and the pages of docs/ by their titles."""
    pages = [
        f"- [{title[1]}]({page.stem}.html)"
        for page in sorted((ROOT / "docs").glob("*.md"))
        if (title := TITLE.search(page.read_text(encoding="utf-8")))
    ]
    about = "> Where the memory of a process went: from outside, without debug symbols, for a process or a core."
    how = FRONT.sub("", skill()).replace("\n## ", "\n### ").replace("\n# ", "\n## ")
    return "\n".join(["# gdbheap", "", about, "", f"#{how}", "## Pages", "", *pages, ""])


def main() -> None:
    """Print the page, or write it."""
    if sys.argv[1:] == ["--write"]:
        FILE.write_text(skill(), encoding="utf-8")
    elif sys.argv[1:] in ([], ["--llms"]):
        sys.stdout.write(llms() if sys.argv[1:] else skill())
    else:
        raise SystemExit("usage: skill.py [--write | --llms]")


if __name__ == "__main__":
    main()
