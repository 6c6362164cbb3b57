"""Build the programs of tests/programs/planted, run them to rest or under a leak checker, and read their tables."""

from __future__ import annotations

import functools
import re
import shutil
import struct
import subprocess
import tempfile
import xml.etree.ElementTree as ElementTree
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest

from support.programs import PATIENCE, SOURCES, plain_environment

FOLDER = SOURCES / "planted"
DIRECT, INDIRECT, CYCLE, INTERIOR, ON_STACK, IN_REGISTER, BY_LAYOUT = range(7)
LOST = (DIRECT, INDIRECT, CYCLE)
ROW = struct.Struct("<5Q")
LIBRARY = "keeper_library"
PROGRAMS = (
    "lists.c", "trees.c", "cycles.c", "interior.c", "odd_places.c", "held_by_threads.c", "held_by_libraries.c",
    "containers.cc", "virtual_classes.cc", "threads_and_pointers.cc", "lost_boxes.rs", "nothing_lost.c",
    "nothing_lost.cc",
)  # fmt: skip
SHARED = ["-O1", "-shared", "-fPIC", "-Wl,-Bsymbolic"]
WHOLE = ["-O1", "-g", "-Wall", "-Wextra", "-Werror", "-pthread"]
# "1,472 (64 direct, 1,408 indirect) bytes in 1 blocks are definitely lost"
OWN_BYTES = re.compile(r"[\d,]+ \(([\d,]+) direct|([\d,]+) bytes")
# The functions that allocate a thread's vector of thread-local data, which only an address in its middle points to.
GLIBCS = {"allocate_dtv", "_dl_allocate_tls"}
LEAK = re.compile(r"^(Direct|Indirect) leak of |^(0x[0-9a-f]+) \((\d+) bytes\)$", re.MULTILINE)
_built = tempfile.TemporaryDirectory(prefix="gdbheap-planted-")


@dataclass(frozen=True)
class Planted:
    """A block that the program noted: the requested size, the bytes of its chunk (0 under a leak checker), its expected
    state, and the number of its structure.
    """

    address: int
    requested: int
    chunk: int
    kind: int
    group: int


@dataclass(frozen=True)
class Tally:
    """A number of blocks and their bytes."""

    blocks: int
    bytes: int


def tally(rows: list[Planted], *kinds: int) -> Tally:
    """Return the sums of the rows of some kinds."""
    found = [row for row in rows if row.kind in kinds]
    return Tally(len(found), sum(row.requested for row in found))


def tool(name: str) -> str:
    """Return a program's path; skip the test if there is none."""
    path = shutil.which(name)
    if path is None:
        pytest.skip(f"no {name}")
    return path


@functools.cache
def _object() -> str:
    path = f"{_built.name}/planted.o"
    subprocess.run([tool("gcc"), *WHOLE, "-c", str(FOLDER / "planted.c"), "-o", path], check=True)
    return path


@functools.cache
def libraries() -> tuple[str, str]:
    """Return the library with which programs are linked, and a copy that the linker treats as another one."""
    paths = f"{_built.name}/libkeeper.so", f"{_built.name}/libloaded.so"
    for path in paths:
        subprocess.run(
            [tool("gcc"), *SHARED, str(FOLDER / f"{LIBRARY}.c"), "-o", path],
            check=True,
        )
    return paths


@functools.cache
def built(name: str) -> str:
    """Return the program, built once per run; skip the test if its compiler is missing."""
    source, path = FOLDER / name, f"{_built.name}/{name.replace('.', '-')}"
    if source.suffix == ".rs":
        rust = [tool("rustc"), "--edition=2021", "-O", "-g", str(source), "-o", path]
        subprocess.run([*rust, "-C", f"link-arg={_object()}"], check=True)
        return path
    compiler = tool("g++" if source.suffix == ".cc" else "gcc")
    linked, _ = libraries()
    subprocess.run([compiler, *WHOLE, str(source), _object(), linked, "-o", path], check=True)
    return path


def command(name: str, seed: int, table: Path) -> list[str]:
    """Return the command that runs the program and lets it write its table."""
    return [built(name), str(seed), str(table), libraries()[1]]


def table_of(path: Path) -> list[Planted]:
    """Return the rows of a table that a program wrote."""
    return [Planted(~row[0] & (1 << 64) - 1, *row[1:]) for row in ROW.iter_unpack(path.read_bytes())]


def lost_by_leak_sanitizer(name: str, seed: int, table: Path) -> dict[int, tuple[int, bool]]:
    """Return {address: (requested size, whether no lost block points to it)} from LeakSanitizer's report of a run."""
    library = subprocess.run(
        [tool("gcc"), "-print-file-name=liblsan.so"], capture_output=True, text=True
    ).stdout.strip()
    if not Path(library).is_absolute():
        pytest.skip("no LeakSanitizer of gcc's")
    settings = "report_objects=1:symbolize=0:exitcode=0:max_leaks=0"
    environment = {**plain_environment(), "LD_PRELOAD": library, "LSAN_OPTIONS": settings}
    done = subprocess.run(command(name, seed, table), capture_output=True, text=True, env=environment, timeout=PATIENCE)
    if "does not work under ptrace" in done.stderr or "failed to" in done.stderr.lower():
        pytest.skip(f"LeakSanitizer cannot run here: {done.stderr.strip().splitlines()[-1][:200]}")
    assert done.returncode == 0 and "SEGV" not in done.stderr, done.stderr[-2000:]
    found, direct = {}, False
    for kind, address, size in LEAK.findall(done.stderr):
        if kind:
            direct = kind == "Direct"
        else:
            found[int(address, 16)] = int(size), direct
    return found


def lost_by_valgrind(name: str, seed: int, table: Path) -> dict[str, Tally]:
    """Return valgrind memcheck's report of a run, by its kinds: DefinitelyLost, IndirectlyLost, PossiblyLost."""
    report = table.with_suffix(".xml")
    words = ["-q", "--leak-check=full", "--show-leak-kinds=all", "--leak-check-heuristics=none", "--num-callers=4"]
    done = subprocess.run(
        [tool("valgrind"), *words, "--xml=yes", f"--xml-file={report}", *command(name, seed, table)],
        capture_output=True, text=True, env=plain_environment(), timeout=4 * PATIENCE,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    blocks, size = Counter[str](), Counter[str]()
    for error in ElementTree.parse(report).getroot().iter("error"):
        kind = error.findtext("kind", "")
        assert kind.startswith("Leak_"), ElementTree.tostring(error)[:2000]
        if GLIBCS.intersection(function.text or "" for function in error.iter("fn")):
            continue
        blocks[kind[5:]] += int(error.findtext("xwhat/leakedblocks", "0"))
        direct = OWN_BYTES.match(error.findtext("xwhat/text", ""))
        assert direct is not None
        size[kind[5:]] += int((direct[1] or direct[2]).replace(",", ""))
    return {kind: Tally(blocks[kind], size[kind]) for kind in ("DefinitelyLost", "IndirectlyLost", "PossiblyLost")}
