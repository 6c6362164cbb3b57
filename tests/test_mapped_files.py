"""Mapped files: files of tmpfs and memfds are shared memory, files on a disk are page cache, and pages that are
mapped at two places exist once. The kernel reports the kind of each page, and divides each by its places."""

from __future__ import annotations

import json
import random
import subprocess
from pathlib import Path

import pytest
from support.kernel import in_rollup, maps, resident_inside
from support.programs import ask, gdbheap, python_program, running

MEMORY = {"tmpfs", "ramfs"}


def test_files_on_a_disk_and_in_memory(rng: random.Random, tmp_path: Path) -> None:
    """Check that each kind has its finding and its line, and that the finding counts the pages of the memfd once and
    mentions this."""
    system = subprocess.run(["stat", "-f", "-c", "%T", tmp_path], capture_output=True, text=True, check=True)
    if system.stdout.strip() in MEMORY:
        pytest.skip("the folder for tests is in memory")
    command = python_program("stripped", "mapped_twice", rng.getrandbits(30), tmp_path / "file")
    with running(command, tmp_path) as target:
        size, twice = json.loads(target.stderr)
        answer = ask("", str(target.pid), "--detail")
        text = gdbheap(str(target.pid)).stdout
        once = in_rollup(target.pid, "Pss_Shmem")
        on_disk = [one for one in maps(target.pid) if one.perms[3] == "s" and "memfd:" not in one.path]
        whole = sum(resident_inside(target.pid, one.start, one.end - one.start) for one in on_disk)
        starts = [one.start for one in maps(target.pid) if one.path == str(tmp_path / "file")]
        places = [ask("at", str(target.pid), f"{start:#x}") for start in starts]
    found = {row["id"]: row for row in answer["findings"]}
    lines = {row["id"]: row for row in answer["ledger"]}
    memory, files = found["shared-memory"], found["mapped-files"]
    assert memory["bytes"] == once and memory["figures"]["repeated"] == twice
    assert lines["shared"]["resident"] == once + twice and lines["file.shared"]["resident"] == whole
    assert size <= whole <= files["bytes"] and files["figures"]["repeated"] == 0
    assert "page cache" in files["text"] and "shm_unlink" not in files["advice"]
    assert "mapped several times" in text
    assert [place["mapping"]["whose"] for place in places] == ["mapped file"]
