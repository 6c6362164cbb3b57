"""docs/findings.md has a section for the ids of every rule, and no others."""

from __future__ import annotations

import re
from pathlib import Path

from gdbheap.findings import RULES
from gdbheap.findings.finding import Figures
from gdbheap.findings.growing import rule as growing
from gdbheap.findings.holder import rule as holder

DOCUMENT = Path(__file__).resolve().parent.parent / "docs/findings.md"
NO_RULES = {"not looked for"}


def test_each_rule_is_documented() -> None:
    """The ids that the rules declare are the titles of the document; each rule declares some."""
    kinds = Figures.__subclasses__()
    titles = re.findall(r"^## (.*)$", DOCUMENT.read_text(encoding="utf-8"), re.MULTILINE)
    documented = [name for title in titles for name in title.lower().split(", ")]
    assert sorted({*documented} - NO_RULES) == sorted(name for kind in kinds for name in kind.ids)
    assert {rule.__module__ for rule in RULES} | {growing.__name__, holder.__name__} == {
        kind.__module__ for kind in kinds
    }
    assert len(documented) == len(set(documented))
