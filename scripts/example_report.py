"""Write the page of the process of examples/bloated.py: example_report.py FILE. ``make site`` uses it.

Run it with the Python that gdbheap is installed in. The page has nothing of this machine except installed software: the
program runs in an empty folder, with the system's Python, and data of its control group are left out. Its process id,
its folder, and the outside path of its root folder are replaced.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from doc_sessions import SHOWN_PID

from gdbheap.heap import Heap
from gdbheap.report.page.target import target_page
from gdbheap.report.text.style import Style
from gdbheap.snapshots.overview import overview
from gdbheap.targets.process import stopped

ROOT = Path(__file__).resolve().parent.parent
PROGRAM = "bloated.py"
FOLDER = "/srv/app"
ROWS = 60


def written(pid: int) -> bytes:
    """Return the page of a process, without contents of its memory."""
    with stopped(pid, None, copies=True) as process:
        heap = Heap(process)
        heap.disclosure.contents = False
        found = overview(heap)
    ledger = replace(found.ledger, container=None)
    return target_page(replace(found, ledger=ledger), Style(rss=ledger.rss.bytes), ROWS)


def main() -> None:
    """Start the program, wait until it is ready, and write its page."""
    if len(sys.argv) != 2:
        raise SystemExit("usage: example_report.py FILE")
    path = Path(sys.argv[1])
    path.parent.mkdir(parents=True, exist_ok=True)
    python = "/usr/bin/python3" if Path("/usr/bin/python3").exists() else sys.executable
    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(ROOT / "examples" / PROGRAM, folder)
        command = [python, "-I", PROGRAM, "--size=60M", "--seed=1", "--seconds=300"]
        with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True) as process:
            try:
                assert process.stdout is not None
                if "ready\n" not in iter(process.stdout.readline, ""):
                    raise SystemExit(f"{PROGRAM} did not come to be ready")
                page = written(process.pid)
            finally:
                process.kill()
    # A file is read under the process's root; its path there is enough.
    for own, shown in ((f"/proc/{process.pid}/root/", "/"), (folder, FOLDER)):
        page = page.replace(own.encode(), shown.encode())
    page = re.sub(rf"\b{process.pid}\b".encode(), SHOWN_PID.encode(), page)
    path.write_bytes(page)
    print(f"{path}: {len(page):,} bytes")


if __name__ == "__main__":
    main()
