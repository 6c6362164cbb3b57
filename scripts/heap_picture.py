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
    """Start the program, draw its map, and remove the process and the paths of this machine."""
    with tempfile.TemporaryDirectory() as folder, example(DEFAULT, "--seed=1", python=PYTHON) as pid:
        path = Path(folder) / "map.svg"
        gdbheap = str(Path(sys.executable).with_name("gdbheap"))
        command = [gdbheap, "map", str(pid), f"--svg={path}", "--cell=256K"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        text = path.read_text(encoding="utf-8")
    PICTURE.write_text(first_area(re.sub(rf"\bprocess {pid}\b", f"process {SHOWN_PID}", text)), encoding="utf-8")


def first_area(text: str) -> str:
    """Return the picture down to the end of the main arena. Below it are only small mappings."""
    lines = text.splitlines()
    titles = [
        place for place, line in enumerate(lines) if re.search(r'<text x="16" y="\d+">[^<]* resident</text>', line)
    ]
    (height,) = re.findall(r'y="(\d+)"', lines[titles[1]])
    kept = "\n".join([*lines[: titles[1]], lines[-1]]) + "\n"
    (whole,) = re.findall(r'^<svg [^>]* height="(\d+)"', kept)
    return re.sub(rf'(viewBox="0 0 \d+ |height="){whole}"', rf'\g<1>{int(height) - 14}"', kept)


if __name__ == "__main__":
    main()
