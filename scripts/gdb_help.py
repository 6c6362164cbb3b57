"""Write the help that gdb has before it loads gdbheap, from the commands' declarations: gdbheap/loader/help.txt.

Without --write it is printed. Run it with the Python that gdbheap is installed in.
"""

from __future__ import annotations

import sys
from pathlib import Path

from gdbheap.commands.gdb.help import help_file

FILE = Path(__file__).resolve().parent.parent / "gdbheap" / "loader" / "help.txt"


def main() -> None:
    """Print the file, or write it."""
    if sys.argv[1:] not in ([], ["--write"]):
        raise SystemExit("usage: gdb_help.py [--write]")
    if sys.argv[1:]:
        FILE.write_text(help_file(), encoding="utf-8")
    else:
        sys.stdout.write(help_file())


if __name__ == "__main__":
    main()
