"""The files that gdb runs: the script ``gdbheap`` for ``gdb -x gdbheap``, and ``start.py``, which a line in gdbinit
names.

``gdbheap install`` makes gdb search this folder for scripts. So the folder contains no other files except the help of
the commands.
"""

from __future__ import annotations

from pathlib import Path

__all__ = ["FOLDER", "SCRIPT", "START"]

FOLDER = Path(__file__).resolve().parent
SCRIPT, START = FOLDER / "gdbheap", FOLDER / "start.py"
