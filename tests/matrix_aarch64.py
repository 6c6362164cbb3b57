"""Make the table about aarch64 in docs/support.md, from the reports of the tests in the virtual machines.

scripts/matrix.sh runs the machines and then this. FOLDER/PAGES/*.xml are the reports of the machine with pages of that
size in KiB.
"""

from __future__ import annotations

import argparse
import sys
import xml.etree.ElementTree as ElementTree
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from matrix import AARCH64
from support.programs import FORMS, GCORE, KERNEL_CORE, PROCESS
from tabulate import tabulate

# What the tests of a row check.
ROWS = {
    "arenas equal `malloc_stats()`": ("test_arenas_equal_malloc_stats", "test_arenas_of_a_core_equal_malloc_stats"),
    "every pointer of the program is a used block": (
        "test_states_of_all_pointers", "test_states_of_all_pointers_elsewhere", "test_at_a_handful",
    ),
    "pools equal `sys._debugmallocstats()`": ("test_pools_equal_debugmallocstats",),
    "populations of objects": ("test_own_classes", "test_exactly_the_new_objects"),
    "books balance to the page": (
        "test_ledger_of_a_process", "test_ledger_of_a_kernel_core", "test_ledger_of_gdbs_core",
        "test_free_lines_page_for_page", "test_each_byte_has_an_owner", "test_books_of_every_form",
    ),
    "`trim` returns what it promised": ("test_prediction", "test_python", "test_cores", "test_pad"),
    "paths lead to their objects": ("test_expressions_lead_there",),
    "50 stops at random instants, 8 threads": ("test_stops_at_random_instants",),
    "no lost signal, no call cut short": ("test_no_call_is_cut_short", "test_a_handler_ends_a_restarted_call"),
    "kills of gdbheap": ("test_no_signal_dies_with_the_tracer", "test_it_dies_with_us"),
    "the same answers in gdb": ("test_same_answers_as_in_a_shell",),
}  # fmt: skip
# Tests whose name shows the form of the target, unless a parameter does.
OF_CORES = {"test_ledger_of_a_kernel_core": (KERNEL_CORE,), "test_ledger_of_gdbs_core": (GCORE,)}
OF_CORES["test_cores"] = (GCORE, KERNEL_CORE)
TEXT = """
`make matrix PARTS=aarch64` runs tests in two virtual machines ([targets.md](targets.md#aarch64)). A cell is `exact` if
every case agreed; the number of cases follows. A cell is `-` if no case is about this form of a target.

{grid}
"""


def cases(folder: Path) -> Iterator[tuple[str, str, str]]:
    """Yield (test, form, outcome) of each case that was not skipped, by the reports in a folder."""
    for report in sorted(folder.glob("*.xml")):
        for case in ElementTree.parse(report).getroot().iter("testcase"):
            name = case.get("name", "")
            test, _, parameters = name.partition("[")
            forms = [form for form in (GCORE, KERNEL_CORE) if form in parameters] or OF_CORES.get(test, (PROCESS,))
            failed = case.find("failure") is not None or case.find("error") is not None
            for form in forms if case.find("skipped") is None else ():
                yield test, form, "failed" if failed else "exact"


def cells(folder: Path) -> dict[tuple[str, str], str]:
    """Return the cell of each row and form."""
    found: dict[tuple[str, str], list[str]] = defaultdict(list)
    rows = {test: row for row, tests in ROWS.items() for test in tests}
    for test, form, outcome in cases(folder):
        if test in rows:
            found[rows[test], form].append(outcome)
    return {place: "failed" if "failed" in all_ else f"exact ({len(all_)})" for place, all_ in found.items()}


def main() -> int:
    """Write the table. Return 1 if a cell failed, or if a machine has no reports."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, required=True, help="where the folders with the reports are")
    parser.add_argument("--output", type=Path, required=True, help="the page, whose end is written anew")
    options = parser.parse_args()
    by_pages = {pages: cells(options.folder / pages) for pages in ("4", "16")}
    headers = ["", *(f"{pages} KiB, {form}" for pages in by_pages for form in FORMS)]
    rows = [[row, *(found.get((row, form), "-") for found in by_pages.values() for form in FORMS)] for row in ROWS]
    text = AARCH64 + TEXT.format(grid=tabulate(rows, headers, tablefmt="github", disable_numparse=True))
    if options.output.is_file():
        before = options.output.read_text(encoding="utf-8").partition(AARCH64)[0].rstrip("\n")
        options.output.write_text(f"{before}\n\n{text}", encoding="utf-8")
    else:
        print(text)
    return int(not all(by_pages.values()) or any("failed" in found.values() for found in by_pages.values()))


if __name__ == "__main__":
    sys.exit(main())
