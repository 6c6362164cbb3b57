"""The causes of tests/agents: their programs run, and the commands give the necessary answers."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from support.programs import gdbheap

sys.path.append(str(Path(__file__).parent / "agents"))
from cases import CASES, Case, running_case

# The cases of tests/reports have their own test. Growth needs two reads, and "nothing is wrong" requires no word.
OWN = [case for case in CASES if case.report is None]
PAGE_IS_ENOUGH = {"02", "03", "06", "12", "16"}


@pytest.mark.parametrize("case", OWN, ids=lambda case: Path(case.program).stem)
def test_a_cause(case: Case) -> None:
    """Check that the first page, read as an answer, names cause and remedy; for cases that need more, only the
    cause."""
    with running_case(case) as target:
        page = gdbheap(target).stdout
    cause, remedy = case.judge(page)
    if case.name == "18":
        assert "gdbheap diff" in page
    elif case.name == "20":
        assert "Findings: none" in page
    else:
        assert cause and (remedy or case.name not in PAGE_IS_ENOUGH), page


def test_what_is_asked() -> None:
    """Check that each of the twenty cases has a true answer that passes for its cause, and that an empty answer
    fails."""
    assert len(CASES) == 20 and [case.name for case in CASES] == [f"{number:02}" for number in range(1, 21)]
    for case in CASES:
        assert case.judge("")[0] is False
        assert case.judge("It needs more memory than it should; restart it every night.") == (False, False), case.name
