"""Blocks whose mapping the kernel divides, because a part of it was passed to madvise."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from support import kernel
from support.programs import FORMS, KINDS, ask, gdbheap, python_program, running


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", KINDS)
def test_all_mmapped_chunks_are_found(kind: str, form: str, rng: random.Random, tmp_path: Path) -> None:
    """Check that as many blocks and bytes are listed as ``mallinfo2`` counts."""
    command = python_program(kind, "parted", rng.getrandbits(32), rng.randrange(10, 40))
    with running(command, tmp_path) as target:
        if "mallinfo2" in target.stderr:
            pytest.skip("this glibc has no mallinfo2")
        count, size = map(int, target.stderr.splitlines()[0].split())
        answer = ask("chunks", target.as_form(form), "--state=mmapped")
    assert (answer["count"], answer["total"]["bytes"]) == (count, size)
    assert len(answer["rows"]) == count and not any("mmapped" in warning for warning in answer["warnings"])


def test_the_whole_extent_is_shown(rng: random.Random, tmp_path: Path) -> None:
    """Check that a block in several mappings, as the kernel lists them, is shown for any address in it."""
    with running(python_program(KINDS[0], "parted", rng.getrandbits(32), 20), tmp_path) as target:
        if "mallinfo2" in target.stderr:
            pytest.skip("this glibc has no mallinfo2")
        blocks = [tuple(map(int, line.split())) for line in target.stderr.splitlines()[1:]]
        mappings = [(mapped.start, mapped.end) for mapped in kernel.maps(target.pid)]
        parts = {block: sum(s < block[0] + block[1] and block[0] < e for s, e in mappings) for block in blocks}
        several = max(blocks, key=lambda block: parts[block])
        address, size = several
        assert parts[several] > 1
        for at in (address, address + size // 2, address + size - 1):
            found = ask("at", str(target.pid), hex(at))["block"]
            assert (found["address"], found["mappings"]) == (address, parts[several])
            assert found["end"] == address + size
            said = gdbheap("at", str(target.pid), hex(at)).stdout
            assert f"{address + size:#x}, spans {parts[several]} mappings" in said
