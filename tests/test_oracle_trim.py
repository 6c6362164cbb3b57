"""``heap trim``: what it predicts is what the kernel says RssAnon loses when the process calls malloc_trim() itself."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import kernel
import pytest
from programs import GCORE, KERNEL_CORE, Running, ask, c_program, python_program, running

FOREIGN, BLOCKED, LOCKED, FORKED, AGAIN, FAST = 1, 2, 4, 8, 16, 32
# malloc_trim() itself touches a little: its stack, the first write to a page of libc's data, chunks that it merges.
OWN = 64 * 1024


def program(rng: random.Random, threads: int, mode: int, largest: int = 200_000) -> list[str]:
    """Return the command of trim.c with random fragmentation."""
    return c_program("trim", rng.getrandbits(30), threads, 30_000 // threads, 3000 // threads, largest, mode)


def agree(predicted: int, actual: int) -> bool:
    """Return whether they differ by no more than 2 % or what the call itself touches."""
    return abs(predicted - actual) <= max(OWN, actual // 50)


def trimmed(target: Running, pad: int = 0) -> int:
    """Have the program call malloc_trim(pad); return by how much RssAnon shrank."""
    before = kernel.anonymous(target.pid)
    target.go_on(str(pad))
    return before - kernel.anonymous(target.pid)


def check_sums(answer: dict[str, Any]) -> None:
    """The arenas add up; what was not done has no actual figures."""
    rows = answer["arenas"]
    assert answer["actual"] is None and all(row["actual"] is None for row in rows)
    assert sum(row["predicted"] for row in rows) == answer["predicted"]
    assert sum(row["whole"] for row in rows) == answer["whole"] >= answer["predicted"]
    assert sorted(row["index"] for row in rows) == list(range(len(rows)))


@pytest.mark.parametrize("mode", [0, FOREIGN, BLOCKED, FORKED, AGAIN, FAST, FAST + AGAIN])
@pytest.mark.parametrize("threads", [1, 2, 9])
def test_prediction(threads: int, mode: int, rng: random.Random, tmp_path: Path) -> None:
    """Main arena, a thread's, eight threads' arenas, in every state."""
    with running(program(rng, threads, mode), tmp_path) as target:
        answer = ask("trim", str(target.pid))
        actual = trimmed(target)
        left = ask("trim", str(target.pid))["predicted"]
    check_sums(answer)
    assert len(answer["arenas"]) == threads
    assert agree(answer["predicted"], actual), (answer, actual)
    assert left == 0
    if threads > 1 or mode & AGAIN == 0:
        assert actual > 4 * OWN, "nothing to speak of was given back"
