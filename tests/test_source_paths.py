"""The names of holders, in the form of source code."""

from __future__ import annotations

import pytest

from gdbheap.answers.accounting.source_paths import source_path


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("sys.modules['__main__'].rows", "rows"),
        ("sys.modules['app.models'].Order.__dict__['total']", "app.models.Order.total"),
        ("sys.modules ['__main__'] .__dict__ ['c'] holds it, through 2 blocks (864, 48 bytes) .__defaults__ [0]",
         "c, through 2 blocks (864, 48 bytes) .__defaults__ [0]"),
        ("sys.modules ['app'] .__dict__ ['pool'] [3] .free holds it at +64", "app.pool[3].free holds it at +64"),
        ("sys.modules [str(b'app')] .__dict__ ['x'] holds it", "app.x holds it"),
        ("local variable coro in run() at runners.py:118 .cr_frame: local variable q in main() at a.py:11 ._queue",
         "local variable q in main() at a.py:11 ._queue"),
        ("local variable gen in main() at a.py:3 .gi_frame: local variable page in lines() at a.py:11",
         "local variable gen in main() at a.py:3 .gi_frame: local variable page in lines() at a.py:11"),
        ("local rows in main() at app.py:9 […] .buffer", "local rows in main() at app.py:9 […] .buffer"),
    ],
)  # fmt: skip
def test_source_path(path: str, name: str) -> None:
    """Check that paths in words begin like those that Python can evaluate."""
    assert source_path(path) == name
