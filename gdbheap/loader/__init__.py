"""The folder of ``gdbheap``, the script that gdb loads. It holds nothing else, because ``gdbheap install`` puts it on
gdb's source path."""

from __future__ import annotations

from pathlib import Path

__all__ = ["FOLDER", "SCRIPT"]

FOLDER = Path(__file__).resolve().parent
SCRIPT = FOLDER / "gdbheap"
