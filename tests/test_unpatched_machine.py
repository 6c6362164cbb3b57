"""On a machine on which gdbheap cannot change code, each command that would need that says so in one line, at once."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path

import pytest
from support.programs import Running, running

from gdbheap.errors import Unsupported
from gdbheap.machines.machine import AARCH64, THIS_MACHINE
from gdbheap.targets import following
from gdbheap.targets.following import LocalProcess
from gdbheap.tracing import recorder_files, replayer

WAITS = "input()"


@pytest.fixture
def target(tmp_path: Path) -> Running:
    """Yield a Python that waits."""
    with running([sys.executable, "-c", WAITS], tmp_path) as found:
        yield found


def test_following(target: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that neither system calls nor functions are followed, and that the line names another command."""
    process = LocalProcess(target.pid)
    process.machine = dataclasses.replace(THIS_MACHINE, has_patches=False)
    monkeypatch.setattr(following, "left_patches", lambda running: pytest.fail("the process was read"))
    with pytest.raises(Unsupported, match="only on x86-64.*'gdbheap diff'") as refused:
        process.calls([1], False, False)
    assert refused.value.status == 5 and "\n" not in str(refused.value)
    with pytest.raises(Unsupported, match="only on x86-64.*breakpoint"):
        process.functions(["malloc"], (), False)


def test_recorder_and_replayer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that the missing recorder and replayer are explained, and that elsewhere they are just missing."""
    for module, find in ((recorder_files, recorder_files.recorder_library), (replayer, replayer.replayer_program)):
        monkeypatch.setattr(module.gdbheap, "__file__", str(tmp_path / "__init__.py"))
        with pytest.raises(Unsupported, match="installed without it"):
            find()
        monkeypatch.setattr(module, "THIS_MACHINE", AARCH64)
        with pytest.raises(Unsupported, match="only on x86-64"):
            find()
        monkeypatch.undo()
