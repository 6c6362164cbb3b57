"""Write the picture of README.md: the map of the heap of examples/bloated.py.

Run it with the Python that gdbheap is installed in.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path

from doc_sessions import DEFAULT, SHOWN_PID, example

PICTURE = Path(__file__).resolve().parent.parent / "docs" / "site" / "static" / "heap-map.svg"
PYTHON = "/usr/bin/python3"


def main() -> None:
    """Start the program, draw its map, and have that name no process and no path of this machine."""
    with tempfile.TemporaryDirectory() as folder, example(DEFAULT, "--seed=1", python=PYTHON) as pid:
        path = Path(folder) / "map.svg"
        gdbheap = str(Path(sys.executable).with_name("gdbheap"))
        command = [gdbheap, "map", str(pid), f"--svg={path}", "--cell=256K"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        text = path.read_text(encoding="utf-8")
    PICTURE.write_text(re.sub(rf"\bprocess {pid}\b", f"process {SHOWN_PID}", text), encoding="utf-8")


if __name__ == "__main__":
    main()
