"""The cores that mutants are made from: small ones of C programs and of each CPython, and images of heaps."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

from images.heap import Image
from images.layouts import GLIBCS
from images.mimalloc import STRIDES
from images.mimalloc import Image as MimallocImage
from support.programs import ALL_RELEASES, c_program, interpreters, release_program, running
from support.reshaped import without_files_note

LAID_OUT = "mimalloc-"
# Cores without ELF headers, and without a list of files too: for these the dynamic linker's list is read.
HEADERLESS, LINKED = "headerless-", "linked-"


def make(folder: Path, rng: random.Random, few: bool = False) -> list[Path]:
    """Write the cores to a folder and return them; ``few``: those of a C program and one of this machine's CPython."""
    releases = [release for release in ALL_RELEASES if interpreters(release)]
    commands = {"c": _threads(rng, folder)}
    for release in releases[-1:] if few else releases:
        commands[f"closure-{release}"] = release_program(release, "closure", rng.getrandbits(30), 200, folder / "truth")
    for release in () if few else releases:
        commands[f"pools-{release}"] = release_program(release, "pools", rng.getrandbits(32), 1500)
    found = [_core(command, folder / name) for name, command in commands.items()]
    headerless = _core(commands["c"], folder / f"{HEADERLESS}c", "0x21")
    found += [headerless, without_files_note(headerless, folder / f"{LINKED}c")]
    return found if few else found + _laid_out(folder, rng)


def _threads(rng: random.Random, folder: Path) -> list[str]:
    return c_program("recorder", 3, rng.getrandbits(30), 2000, 100, 20_000, 0, folder / "table")


def _core(command: list[str], path: Path, dumped: str = "0x33") -> Path:
    """Return a core; ``dumped``: the kernel's filter (core(5)), 0x21 for one without the pages of ELF headers."""
    with running(command, path.parent) as target:
        Path(f"/proc/{target.pid}/coredump_filter").write_text(dumped)
        core = target.kernel_core()
    shutil.move(str(core), path)
    shutil.rmtree(core.parent)
    return path


def _laid_out(folder: Path, rng: random.Random) -> list[Path]:
    """Return heaps of the oldest glibc, the newest and one between, and of both kinds of CPython's mimalloc."""
    glibcs = (GLIBCS[0], rng.choice(GLIBCS), GLIBCS[-1])
    images = [Image(glibc, rng).save(folder / f"glibc-{number}") for number, glibc in enumerate(glibcs)]
    return images + [MimallocImage(kind, rng).save(folder / f"{LAID_OUT}{kind}") for kind in STRIDES]
