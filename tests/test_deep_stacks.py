"""``heap threads`` of a deep recursion: the text is short, every frame is counted, and the largest frame is shown."""

from __future__ import annotations

import random
import re
import resource
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from support.library import heap_of
from support.programs import interpreter_of_release, running, since

from gdbheap.answers.threads import threads
from gdbheap.contents.python.objects.references import References
from gdbheap.graph.nodes import Node
from gdbheap.report.text.style import style_for
from gdbheap.report.words.threads import INNERMOST, LARGEST, MOST_FRAMES, OUTERMOST, render_threads

RECURSION = """
import sys
deep, place, size = map(int, sys.argv[1:])
sys.setrecursionlimit(deep + 100)

def down(left):
    if left == place:
        large = bytes(size)
    if left == 0:
        sys.stdin.read(1)
    else:
        down(left - 1)

down(deep)
"""
# One deep frame takes more of C's stack than 8 MiB before Python 3.11.
PAGE, RELEASES = resource.getpagesize(), since("3.11")


@pytest.mark.parametrize("release", RELEASES)
def test_a_deep_recursion(release: str, rng: random.Random, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that the frames in the text and in its gaps are those of the stack, with a buffer in the middle; nodes are
    read in groups."""
    deep, size, reads = rng.randrange(3000, 9000), rng.randrange(1 << 20, 8 << 20), list[int]()
    place = rng.randrange(2 * OUTERMOST, deep - 2 * INNERMOST)
    command = [interpreter_of_release(release).executable, "-c", RECURSION, *map(str, (deep, place, size))]
    with running(command, tmp_path) as target, heap_of(str(target.pid)) as heap:
        read = References._read

        def counted(references: References, some: Sequence[int]) -> Iterator[Node]:
            reads.append(len(some))
            return read(references, some)

        monkeypatch.setattr(References, "_read", counted)
        answer = threads(heap)
        text = render_threads(answer, style_for(None, True, None))
    # The program's frame, and one for each number.
    frames = answer.rows[0].running
    assert len(frames) == deep + 2 and len(reads) < deep / 10
    shown = re.findall(r"^  (?:down|<module>)\(\) in .*: variables retain", text, re.MULTILINE)
    gaps = [int(found.replace(",", "")) for found in re.findall(r"^  \(([\d,]+) more frames?: ", text, re.MULTILINE)]
    assert INNERMOST + OUTERMOST + 1 <= len(shown) <= INNERMOST + OUTERMOST + LARGEST <= MOST_FRAMES
    assert len(shown) + sum(gaps) == len(frames) and 2 <= len(gaps) <= LARGEST + 1
    held = re.search(r"^ *([\d,]+) +([\d,]+) +large +bytes ", text, re.MULTILINE)
    assert held is not None, text
    # malloc adds a header, and whole pages if it maps the block.
    assert all(size <= int(found.replace(",", "")) < size + 2 * PAGE for found in held.groups())
