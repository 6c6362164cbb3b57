"""The shipped table of objects' fields against the debug information of every CPython that is found here."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys

import pytest
from conftest import ROOT
from programs import interpreters, since

from gdbheap.layout.tables import table


@pytest.mark.parametrize("release", since("3.6"))
def test_table_equals_debug_information(release: str) -> None:
    """Every field that scripts/object_offsets.py knows, of a build with debug information."""
    if shutil.which("gdb") is None:
        pytest.skip("no gdb")
    unstripped = [found.library for found in interpreters(release) if found.kind == "unstripped"]
    if not unstripped:
        pytest.skip(f"no unstripped CPython {release}")
    script = str(ROOT / "scripts" / "object_offsets.py")
    done = subprocess.run([sys.executable, script, unstripped[0]], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    shipped = table("cpython")["releases"][release]
    assert found == {key: shipped[key] for key in found}
