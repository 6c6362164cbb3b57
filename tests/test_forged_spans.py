"""A tcmalloc forged in memory that a program only reserved: gdbheap takes no memory for blocks that cannot exist."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.programs import GDBHEAP, Running, c_program, running
from support.work import ended

# A bit for each block of 8 bytes in GIB GiB takes a sixty-fourth of this, and several sets of bits are needed.
GIB, MOST = 64, 512 << 20


@pytest.fixture(scope="module", params=[1, 2])
def target(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Yield a program that claims GIB GiB of blocks in spans of some pages."""
    with running(c_program("forged_spans", GIB, request.param), tmp_path_factory.mktemp("spans")) as started:
        yield started


@pytest.mark.parametrize("noun", ["arenas", "heap", "check"])
def test_reserved_memory(noun: str, target: Running) -> None:
    """Check that the spans are damage, and that gdbheap needs little memory to say so."""
    words = [str(target.pid)] if noun == "heap" else [noun, str(target.pid)]
    status, said, peak = ended([GDBHEAP, *words])
    assert "fault of gdbheap" not in said and "resident memory" in said, said
    assert status == 1 and peak < MOST, (peak, said)


def test_touched_memory(tmp_path: Path) -> None:
    """Check that few untouched spans are still read: only their number makes them impossible."""
    with running(c_program("forged_spans", 1, 2), tmp_path) as target:
        status, said, _ = ended([GDBHEAP, "arenas", target.pid])
        assert status == 0 and "resident memory" not in said, said
