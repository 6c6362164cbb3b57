"""The shipped tables of offsets, of objects' fields and of published structures, against the debug information of
every CPython that is found here."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT
from support.programs import interpreters, since

from gdbheap.layout.shipped_tables import table


def told(release: str, *options: str, pattern: str = "") -> dict[str, Any]:
    """Return the output of scripts/object_offsets.py for a build with debug information, or for a file below its
    folder; skip the test without one."""
    if shutil.which("gdb") is None:
        pytest.skip("no gdb")
    unstripped = [found.library for found in interpreters(release) if found.kind == "unstripped"]
    if not unstripped:
        pytest.skip(f"no unstripped CPython {release}")
    folder = Path(unstripped[0]).parent
    file = next(map(str, folder.rglob(pattern)), None) if pattern else unstripped[0]
    if file is None:
        pytest.skip(f"no {pattern} of CPython {release}")
    script = str(ROOT / "scripts" / "object_offsets.py")
    done = subprocess.run([sys.executable, script, file, *options], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


@pytest.mark.parametrize("release", since("3.6"))
def test_table_equals_debug_information(release: str) -> None:
    """Check every field that scripts/object_offsets.py knows, for a build with debug information."""
    found = told(release)
    shipped = table("cpython")["releases"][release]
    assert found == {key: shipped.get(key) for key in found}


@pytest.mark.parametrize("release", [release for release in since("3.6") if release not in ("3.14", "3.15")])
def test_fields_of_tasks(release: str) -> None:
    """Check the fields of asyncio's tasks, up to the release that publishes them."""
    found = told(release, "tasks", pattern="lib-dynload/_asyncio.*.so")
    shipped = table("cpython")["releases"][release]
    assert found == {key: shipped.get(key) for key in found}


@pytest.mark.parametrize("release", since("3.13"))
def test_published_words_equal_debug_information(release: str) -> None:
    """Check every group of struct _Py_DebugOffsets, and the words in it, in their order."""
    found = told(release, "published")
    shipped = table("debug_offsets")["releases"][release]
    assert [(group, shipped[group]) for group in shipped] == list(found.items())
