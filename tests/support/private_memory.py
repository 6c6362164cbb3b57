"""The private memory of a process, as the kernel counts it."""

from __future__ import annotations

from pathlib import Path


def private_in_smaps(pid: int) -> int:
    """Return the bytes of writable private memory that the kernel counts for a process alone."""
    found, counts = 0, False
    for line in Path(f"/proc/{pid}/smaps").read_text().splitlines():
        first, _, rest = line.partition(" ")
        if "-" in first and not first.endswith(":"):
            counts = rest.startswith("rw-p")
        elif counts and first in ("Private_Clean:", "Private_Dirty:"):
            found += 1024 * int(rest.split()[0])
    return found
