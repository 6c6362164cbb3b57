"""docs/findings.md and docs/findings-tested.md have a section for the ids of every rule, and no other sections."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from gdbheap.findings.finding import Figures
from gdbheap.findings.growing import rule as growing
from gdbheap.findings.holder import rule as holder
from gdbheap.findings.registry import RULES

DOCS = Path(__file__).resolve().parent.parent / "docs"
NO_RULES = {"not looked for"}


def sections(page: str) -> Iterator[tuple[str, str]]:
    """Yield the title and the text of each section of a page."""
    for part in re.split(r"^## ", (DOCS / page).read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]:
        title, _, text = part.partition("\n")
        yield title, text


@pytest.mark.parametrize("page", ["findings.md", "findings-tested.md"])
def test_each_rule_is_documented(page: str) -> None:
    """Check that the ids that the rules declare are the titles of the page, and that each rule declares some."""
    kinds = Figures.__subclasses__()
    titles = [title for title, _ in sections(page)]
    documented = [name for title in titles for name in title.lower().split(", ")]
    assert sorted({*documented} - NO_RULES) == sorted(name for kind in kinds for name in kind.ids)
    assert {rule.__module__ for rule in RULES} | {growing.__name__, holder.__name__} == {
        kind.__module__ for kind in kinds
    }
    assert len(documented) == len(set(documented))


def test_each_finding_has_a_fix() -> None:
    """Check that each finding says what it means, its fix, and how to check the fix."""
    for title, text in sections("findings.md"):
        found = re.findall(r"^\*\*(\w+):\*\* \S", text, re.MULTILINE)
        assert found == ["Means", "Fix", "Check"], title
