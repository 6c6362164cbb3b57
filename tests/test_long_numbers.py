"""Numbers in foreign files with more digits than Python reads."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from support.programs import c_program, gdbheap, running

from gdbheap.allocators.glibc.start_settings import number_of
from gdbheap.answers import stats
from gdbheap.contents.python.text.disclosure import without_words
from gdbheap.machines.machine import LARGEST_ADDRESS
from gdbheap.text import bounded_number
from gdbheap.tracing.replay_settings import _check_value

DIGITS = 5000
LONG = "9" * DIGITS


@pytest.mark.parametrize("setting", [{"MALLOC_ARENA_MAX": LONG}, {"GLIBC_TUNABLES": f"glibc.malloc.arena_max={LONG}"}])
def test_settings_of_a_process(setting: dict[str, str], tmp_path: Path) -> None:
    with running(c_program("idle"), tmp_path, setting) as target:
        done = gdbheap("check-advice", str(target.pid), "--json")
    assert done.returncode in (0, 1), done.stderr[-500:]
    assert "fault of gdbheap" not in done.stderr and json.loads(done.stdout)


def test_numbers_as_glibc_reads_them() -> None:
    values = {"0" * DIGITS + "7": 7, "0x" + "0" * DIGITS + "1f": 31, "12 and more": 12, "-1": LARGEST_ADDRESS}
    values |= {LONG: LARGEST_ADDRESS, "0x" + "f" * DIGITS: LARGEST_ADDRESS, "0": 0, "0x10": 16}
    assert {value: number_of(value) for value in values} == values


def test_printed_figures() -> None:
    figures = SimpleNamespace(system=1, in_use=1)
    arenas = cast(Any, SimpleNamespace(arenas=[], total=figures))
    text = "Total (incl. mmap):\nsystem bytes     = {}\nin use bytes     = {}\n"
    assert stats.compare(arenas, text.format(1, "0" * DIGITS + "1")).agrees
    found = stats.compare(arenas, text.format(1, LONG))
    assert not found.agrees and len(found.rows) == 2


def test_masked_words() -> None:
    assert without_words(f"at {LONG}, 12") == f"at <number of {DIGITS:,} digits>, 12"


def test_tunables_of_a_log() -> None:
    with pytest.raises(ValueError, match="at most 8"):
        _check_value("name", LONG, {"name": (0, 8)})


def test_bounded_numbers() -> None:
    assert [bounded_number(digits, 5) for digits in ("9" * (1 << 22), "", "4", "6")] == [5, 0, 4, 5]
