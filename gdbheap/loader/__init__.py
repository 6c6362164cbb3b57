"""The files that gdb runs: ``gdbheap``, for ``gdb -x gdbheap``, and ``start.py``, which a line in gdbinit names.

``gdbheap install`` makes gdb search this folder for scripts. So it contains nothing else except the help of the
commands.
"""

from __future__ import annotations

from pathlib import Path

__all__ = ["FOLDER", "SCRIPT", "START"]

FOLDER = Path(__file__).resolve().parent
SCRIPT, START = FOLDER / "gdbheap", FOLDER / "start.py"
