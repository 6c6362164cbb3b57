"""The names of holders, as source code would write them."""

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
        ("sys.modules [str(b'app')] .__dict__ ['x'] holds it", "sys.modules[str(b'app')].x holds it"),
        ("local rows in main() at app.py:9 […] .buffer", "local rows in main() at app.py:9 […] .buffer"),
    ],
)  # fmt: skip
def test_source_path(path: str, name: str) -> None:
    """Paths in words begin as those that Python can evaluate."""
    assert source_path(path) == name
