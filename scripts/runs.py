"""Store the result of a long run in docs/runs.md: a row with its date and commit. A later run replaces the row.

Usage: [COMMIT=...] runs.py RUN RESULT
COMMIT names the commit that ran, if it is not the state of this checkout.
"""

from __future__ import annotations

import datetime
import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "runs.md"
ROW = re.compile(r"^\| (.+?) \| (\d{4}-\d\d-\d\d) \| (\S+) \| (.*) \|$", re.MULTILINE)
HEAD = """\
# Long runs

These scripts write the rows themselves if `STORE=yes` is in their environment: `scripts/fresh_debian.sh`,
`scripts/clean_machines.sh`, `scripts/release.sh` and `tests/soak.py`. A row has the date and the commit of the last run
of its kind. The times depend on the machine's other load.

| run | date | commit | result |
| --- | --- | --- | --- |
"""


def commit() -> str:
    """Return the commit of this checkout, with "-dirty" after it if files have changed."""
    command = ["git", "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
    return subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True).stdout.strip()


def page(old: str, row: tuple[str, str, str, str]) -> str:
    """Return the page ``old`` with the row of a run, its date, its commit and its result, in the order of the runs."""
    rows = {found[0]: found for found in ROW.findall(old)}
    rows[row[0]] = row
    return HEAD + "".join(f"| {' | '.join(rows[run])} |\n" for run in sorted(rows))


def main() -> None:
    """Store one result."""
    if len(sys.argv) != 3:
        raise SystemExit("usage: runs.py RUN RESULT")
    run, result = (" ".join(text.replace("|", "/").split()) for text in sys.argv[1:])
    today = datetime.datetime.now(datetime.timezone.utc).date().isoformat()
    old = PAGE.read_text(encoding="utf-8") if PAGE.exists() else ""
    PAGE.write_text(page(old, (run, today, os.environ.get("COMMIT") or commit(), result)), encoding="utf-8")


if __name__ == "__main__":
    main()
