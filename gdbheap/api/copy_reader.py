"""The process that reads the frozen copy of a program, for ``gdbheap.snapshot`` and ``gdbheap.write_report``.

The copy starts this process as its child, with the copy's memory open as a descriptor. The process prints its result in
one line.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from typing import Any, NoReturn

from gdbheap._native import OWN_MEMORY, end_with_parent
from gdbheap.api.writing import target_report, write_page, write_snapshot
from gdbheap.errors import GdbheapError, reason_of
from gdbheap.heap import Heap
from gdbheap.refusals.refusal import open_folder
from gdbheap.targets.own_copy import OwnCopy, ThreadId

__all__ = ["main"]

FAILED = 1
WHAT_WORKS = (
    "the program's copy cannot be read: make the program dumpable and mount /proc, or run gdbheap outside as root"
)


def main(order: dict[str, Any]) -> NoReturn:
    """Write the file that ``order`` asks for, and exit. Also exit if the copy ends; the copy's process id is the last
    argument."""
    copy = int(sys.argv[-1])
    if not end_with_parent(copy, signal.SIGKILL):
        os._exit(FAILED)
    try:
        said, status = {"size": _write(order, copy)}, 0
    except BaseException as error:
        status = error.status if isinstance(error, GdbheapError) else FAILED
        said = {"error": _reason(error), "status": status}  # type: ignore[dict-item]
    sys.stdout.write(json.dumps(said) + "\n")
    sys.stdout.flush()
    os._exit(status)


def _reason(error: BaseException) -> str:
    if isinstance(error, PermissionError):
        return f"{WHAT_WORKS} ({error.strerror})"
    if os.environ.get("GDBHEAP_DEBUG"):
        raise error
    return reason_of(error)


def _write(order: dict[str, Any], copy: int) -> int:
    program = open_folder(order["pid"])
    threads = [ThreadId(*pair) for pair in order["threads"]]
    heap = Heap(OwnCopy(open_folder(copy), program, OWN_MEMORY, threads))
    if order["what"] == "report":
        return write_page(order["file"], target_report(heap, order["owners"]))
    return write_snapshot(heap, order["file"], order["owners"], order["blocks"]).size
