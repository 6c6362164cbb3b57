"""Measure how much memory of real programs the first page and the first ten rows of ``heap owners`` explain.

``make named`` runs this after installing other people's packages. ``--write`` puts the tables into docs/holders.md,
otherwise they are printed.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
from pathlib import Path

import pytest
from conftest import ROOT
from support.programs import ask
from support.services import SERVICES, Service, serving
from tabulate import tabulate

PAGE = ROOT / "docs" / "holders.md"
MARK = "<!-- the tables: make named -->\n"
ROWS = 10
MIB = 1 << 20


def tables(service: Service, directory: Path) -> tuple[list[str], str]:
    """Return a row of the table of programs, and the table of one program."""
    with serving(service, directory) as pid:
        answer, page = ask("owners", str(pid), f"--top={ROWS}"), ask("", str(pid))
    used, groups = answer["total"]["bytes"], answer["rows"]
    shown = sum(row["bytes"] for row in groups)
    rows = [
        [f"{row['bytes'] / MIB:.1f}", f"{100 * row['bytes'] / used:.1f}", _plain(row["path"]), _parts(row)]
        for row in groups
    ]
    table = tabulate(rows, ["MiB", "%", "held by", "most of it"], tablefmt="github", disable_numparse=True)
    share = f"{100 * shown / used:.1f} %"
    named = sum(row["bytes"] for row in [*page["holders"], *filter(None, [page["imported"]])])
    first = f"{100 * named / page['summary']['used']:.1f} %"
    return [service.title, f"{used / MIB:.1f} MiB", first, share], f"### {service.title}: {share}\n{table}\n"


def _plain(name: str) -> str:
    return re.sub(r"([|<])", r"\\\1", name)


def _parts(row: dict[str, list[dict[str, object]]]) -> str:
    return ", ".join(f"{part['count']:,} {part['what']}" for part in row["parts"][:2])


def main() -> None:
    """Print the tables, or write them into the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    lines, parts = [], []
    for service in SERVICES:
        with tempfile.TemporaryDirectory() as folder:
            try:
                line, part = tables(service, Path(folder))
            except pytest.skip.Exception as reason:
                print(f"skipped: {service.title}: {reason}", file=sys.stderr)
                continue
        lines.append(line)
        parts.append(part)
    headers = ["program", "in use", "with a holder on its first page", f"in the first {ROWS} rows"]
    text = tabulate(lines, headers, tablefmt="github", disable_numparse=True) + "\n\n" + "\n".join(parts)
    if not options.write:
        print(text)
        return
    PAGE.write_text(f"{PAGE.read_text().split(MARK)[0]}{MARK}{text}")


if __name__ == "__main__":
    main()
