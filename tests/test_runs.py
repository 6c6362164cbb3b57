"""scripts/runs.py: the page of long runs has one row for each kind of run, the newest."""

from __future__ import annotations

from support.scripts import ROOT, script

runs = script("runs")


def test_a_later_run_replaces_a_row() -> None:
    """Check that rows are ordered, that other rows stay, and that the stored page is what the script would write."""
    first = runs.page("", ("make b", "2026-01-01", "abc", "1 s done"))
    both = runs.page(first, ("make a", "2026-01-02", "def-dirty", "2 s done, 1 s failed"))
    again = runs.page(both, ("make b", "2026-01-03", "123", "3 s done"))
    assert runs.ROW.findall(again) == [
        ("make a", "2026-01-02", "def-dirty", "2 s done, 1 s failed"),
        ("make b", "2026-01-03", "123", "3 s done"),
    ]
    stored = (ROOT / "docs" / "runs.md").read_text(encoding="utf-8")
    assert runs.page(stored, runs.ROW.findall(stored)[0]) == stored
