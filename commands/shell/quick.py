"""Answer lines that need no parser, with as few imports as possible, because start-up is most of their run time.

The answers are the same as those of the commands without options, because the same code computes and renders them."""

from __future__ import annotations

import sys

__all__ = ["LINES"]


def _ps() -> str:
    from gdbheap.processes.programs import read, summed
    from gdbheap.report.text.style import style_for
    from gdbheap.report.words.ps import render
    from gdbheap.text import printable_record

    return render(printable_record(summed(read())), 0, False, style_for(sys.stdout, False, None))


def _version() -> str:
    from gdbheap import __commit__, __version__

    return f"gdbheap {__version__}" + (f" (commit {__commit__})" if __commit__ else "")


def _gdb_script() -> str:
    from gdbheap.loader import SCRIPT

    return str(SCRIPT)


LINES = {"ps": _ps, "--version": _version, "-V": _version, "--gdb-script": _gdb_script}
"""For each line of a single word, the function that returns its output."""
