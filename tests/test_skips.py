"""docs/skips.md: each reason for which a test is skipped has a line that says what lifts it."""

from __future__ import annotations

import pytest
from support.scripts import ROOT, script

skips = script("skips")


def test_the_page_lists_every_reason() -> None:
    """Check that the page is what the script makes of the tests (scripts/skips.py --write)."""
    assert (ROOT / "docs" / "skips.md").read_text(encoding="utf-8") == skips.page()


def test_a_new_reason_needs_a_rule() -> None:
    """Check that a reason without a rule is refused, and that reasons are found in all forms."""
    text = 'pytest.skip(f"no {x}")\npytest.mark.skipif(y, reason="no gdb")\npytest.importorskip("yaml")\npytest.skip()'
    assert list(skips.reasons(text)) == ["no {x}", "no gdb", "import yaml"]
    with pytest.raises(SystemExit, match="no rule"):
        skips.rule_of("the moon is full")


def test_what_make_test_installs_is_installed() -> None:
    """Check that each package which the page says is installed is one that scripts/setup.sh knows."""
    setup = (ROOT / "scripts" / "setup.sh").read_text(encoding="utf-8")
    for heading, _, lift in skips.RULES:
        if heading == skips.INSTALLED:
            (named,) = [lift.partition(";")[0].partition(", which")[0].partition(", or")[0]]
            names = set(named.split(", ")) - {"bash", "binutils"}
            assert {name for name in names if name not in setup} == set(), lift


def test_reasons_are_shown_without_code() -> None:
    """Check that the page shows a word instead of each computed part, and both texts of a conditional expression."""
    text = "pytest.skip('no root' if x else f'no {names[0]} here: {done.stderr[-9:]}')\npytest.skip(reason)"
    shown = [skips.plain(one) for one in skips.reasons(text)]
    assert shown == ["no root", "no NAMES here: OUTPUT", "the test's own reason"]
    assert skips.plain("no {', '.join(some_names)}") == "no SOME NAMES"
    assert "{" not in skips.page()
