"""Blocks whose mapping the kernel keeps in parts, because a part of it was given to madvise."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from programs import FORMS, KINDS, ask, python_program, running


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", KINDS)
def test_all_mmapped_chunks_are_found(kind: str, form: str, rng: random.Random, tmp_path: Path) -> None:
    """As many as ``mallinfo2`` counts, of as many bytes, each of them listed."""
    command = python_program(kind, "parted", rng.getrandbits(32), rng.randrange(10, 40))
    with running(command, tmp_path) as target:
        if "mallinfo2" in target.stderr:
            pytest.skip("this glibc has no mallinfo2")
        count, size = map(int, target.stderr.split())
        answer = ask("chunks", target.as_form(form), "--state=mmapped")
    assert (answer["count"], answer["bytes"]) == (count, size)
    assert len(answer["chunks"]) == count and not any("mmapped" in warning for warning in answer["warnings"])
