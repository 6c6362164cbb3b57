"""Files that another program serves and that are never answered: whoever maps one keeps nobody."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.attackers import needs_root, place
from support.programs import GDBHEAP, PATIENCE, SOURCES

from gdbheap.target.file_systems import find_answering

FUSE = (10, 229)


@contextmanager
def mapped(how: str, folder: Path) -> Iterator[int]:
    """Yield the id of a process that has mapped such a file; skip the test where none can be mounted."""
    mounted, node = folder / "mounted", folder / "fuse"
    mounted.mkdir()
    try:
        os.mknod(node, stat.S_IFCHR | 0o666, os.makedev(*FUSE))
    except OSError as error:
        pytest.skip(f"no device can be made here: {error}")
    command = [sys.executable, str(SOURCES / "unanswered.py"), str(mounted), str(node), how]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None and process.stderr is not None
        line = process.stdout.readline()
        if not line:
            pytest.skip(f"nothing can be mounted here: {process.stderr.read().strip()[-200:]}")
        yield int(line.split()[0])
    finally:
        process.kill()
        process.wait()


@needs_root
@pytest.mark.parametrize("how", ["private", "shared"])
def test_nobody_waits(how: str) -> None:
    """Each command answers; without its pages it says what it knows."""
    with place(0o755) as folder, mapped(how, folder) as pid:
        for words in ([], ["owners"], ["duplicates"], ["info"], ["check", "--clone"]):
            noun, *options = words or [""]
            command = [str(GDBHEAP), *([noun] if noun else []), str(pid), *options]
            done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
            assert done.returncode in (0, 1), done.stderr


def test_mounts_tell_who_answers() -> None:
    """Of a FUSE mount it is the user that it names; nobody is believed where it names none."""
    lines = [
        "31 1 254:0 / / rw - ext4 /dev/vda rw",
        "32 31 0:42 / /mnt/a\\040b rw,nosuid shared:1 - fuse.sshfs me@there rw,user_id=1000,group_id=1000",
        "33 31 0:43 / /mnt/c rw - fuseblk /dev/sda1 rw,user_id=0,group_id=0,allow_other",
        "34 31 0:44 / /mnt/d rw - fuse x rw",
        "35 31 0:45 / /dev/shm rw - tmpfs tmpfs rw",
        "damaged",
        "36 31 x:y / / rw - fuse x rw,user_id=5",
    ]
    found = find_answering("\n".join(lines).encode())
    assert found == {"fe:00": None, "00:2a": 1000, "00:2b": 0, "00:2c": -1, "00:2d": None}
