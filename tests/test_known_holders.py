"""Holders and findings with names by their contents: contexts of OpenSSL, a bounded cache, equal strings."""

from __future__ import annotations

import random
import sys
from pathlib import Path

from support.programs import SOURCES, ask, gdbheap, running

CACHED = (
    "import functools, sys\n"
    "@functools.lru_cache(maxsize={limit})\n"
    "def page(n): return bytes(4000)\n"
    "for n in range({calls}): page(n)\n"
    "print(flush=True); sys.stdin.readline()"
)


def test_contexts_have_what_hangs_on_them(rng: random.Random, tmp_path: Path) -> None:
    """Check that blocks of OpenSSL count for the contexts that refer to them, and that the parts together do not exceed
    the row.
    """
    count = rng.randrange(300, 500)
    with running([sys.executable, str(SOURCES / "clients.py"), str(count), "0"], tmp_path) as target:
        rows = ask("owners", str(target.pid))["rows"]
    (row,) = [row for row in rows if (row["path"] or "").endswith(".clients")]
    assert (row["parts"][0]["what"], row["parts"][0]["count"]) == ("ssl.SSLContext", count)
    assert 2 * row["parts"][0]["bytes"] > row["bytes"] >= sum(part["bytes"] for part in row["parts"])


def test_limit_of_a_cache(rng: random.Random, tmp_path: Path) -> None:
    """Check that the page states how many entries an lru_cache has, and whether it has a limit."""
    calls = rng.randrange(5000, 9000)
    for limit, entries, words in (
        (None, calls, "lru_cache without a limit"),
        (4000, 4000, "lru_cache limited to 4,000"),
    ):
        with running([sys.executable, "-c", CACHED.format(limit=limit, calls=calls)], tmp_path) as target:
            page = gdbheap(str(target.pid)).stdout
        assert f"{words}, {entries:,} entries" in page


def test_equal_strings(rng: random.Random, tmp_path: Path) -> None:
    """Check that nearly all strings are copies of five values, and that the saving of one copy each is promised."""
    count = rng.randrange(200_000, 300_000)
    size = sys.getsizeof("value-1")
    with running([sys.executable, str(SOURCES / "clients.py"), "0", str(count)], tmp_path) as target:
        (found,) = [row for row in ask("", str(target.pid))["findings"] if row["id"] == "equal-strings"]
    figures = found["figures"]
    assert count <= figures["copies"] <= figures["objects"]
    # pymalloc rounds a block up to 16 bytes.
    assert found["bytes"] >= (count - 5) * size


def test_equal_bytes(rng: random.Random, tmp_path: Path) -> None:
    """Check that copies of bytes objects are found like copies of strings, and that different ones are not."""
    count, size = rng.randrange(4000, 8000), rng.randrange(2000, 5000)
    made = f"import sys; held = [%s for n in range({count})]; print(flush=True); sys.stdin.readline()"
    for each, is_told in ((f"bytes({size})", True), (f"n.to_bytes({size}, 'little')", False)):
        with running([sys.executable, "-c", made % each], tmp_path) as target:
            found = [row for row in ask("", str(target.pid))["findings"] if row["id"] == "equal-strings"]
        assert bool(found) == is_told
        for row in found:
            assert row["figures"]["copies"] >= count and (count - 1) * size <= row["bytes"] <= count * (size + 100)
            assert "bytes objects are copies of" in row["text"] and "where the bytes objects are" in row["advice"]


def test_equal_strings_everywhere(rng: random.Random, tmp_path: Path) -> None:
    """Check that a process, its snapshot and its report have the same finding if half of the bytes objects are copies.

    A value has few copies, so most objects of a small sample differ.
    """
    values, times, size = rng.randrange(900, 1100), rng.randrange(8, 12), rng.randrange(2000, 2500)
    made = (
        f"import sys; held = [b'%08d' % n + bytes({size}) for n in [*range({values})] * {times}];"
        f"more = [b'x%08d' % n + bytes({size}) for n in range({values} * {times})];"
        "print(flush=True); sys.stdin.readline()"
    )
    with running([sys.executable, "-c", made], tmp_path) as target:
        pid, file, page = str(target.pid), str(tmp_path / "a.heap"), tmp_path / "a.html"
        assert gdbheap("snapshot", pid, file).returncode == 0
        assert gdbheap("report", pid, "-o", str(page)).returncode == 0
        looks = [ask("", pid), ask("", pid, "--max-stop=0"), ask("", file)]
        changed = ask("diff", file, pid)["findings"]
    for look in looks:
        (found,) = [row for row in look["findings"] if row["id"] == "equal-strings"]
        assert found["figures"]["copies"] >= values * times
        assert (times - 1) * values * size <= found["bytes"] <= (times - 1) * values * (size + 100)
    assert "bytes objects are copies of" in page.read_text() and changed == []
