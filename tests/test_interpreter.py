"""The interpreter, found without help: with and without symbols, with any allocator, checked against the program's
own threads and objects."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.interpreter_copies import copied, without_symbols
from support.kernel import maps
from support.other_allocators import by_name, compiled, library
from support.programs import (
    KERNEL_CORE,
    KINDS,
    PROCESS,
    RELEASE,
    ROOT_FOLDER,
    Running,
    ask,
    gdbheap,
    interpreter_of_release,
    release_program,
    running,
    said,
    since,
)

from gdbheap.layout.shipped_tables import table

pytestmark = pytest.mark.cases(4)

MODES = ("pymalloc", "malloc")
# The first release that publishes the offsets of its fields.
PUBLISHED = since("3.13")
OWN = "_Py_DebugOffsets"


def start(release: str, rng: random.Random, folder: Path, mode: str, more: dict[str, str] | None = None) -> Any:
    """Start standing.py on a release; its truth is in ``folder``/truth."""
    numbers = rng.getrandbits(30), rng.randrange(100, 3000), rng.randrange(1, 6)
    command = release_program(release, "standing", *numbers, folder / "truth")
    return running(command, folder, {"PYTHONMALLOC": mode, **(more or {})})


def facts(target: str) -> dict[str, dict[str, Any]]:
    """Return the facts of ``heap info`` by name."""
    return {fact["fact"]: fact for fact in ask("info", target)["rows"]}


def stacks(target: str) -> list[list[list[Any]]]:
    """Return (function, line) of each frame of each thread but the main one, by ``heap threads``."""
    threads = ask("threads", target)["rows"]
    found = [[[frame["function"], frame["line"]] for frame in thread["running"]] for thread in threads]
    (main,) = [frames for frames in found if frames[-2:] and frames[-2][0] == "main"]
    found.remove(main)
    return sorted(found)


def check(target: str, folder: Path) -> None:
    """Compare the objects of the class and the place of each thread with the program's output."""
    truth = json.loads((folder / "truth").read_text())
    assert ask("pyobjects", target, "--type=__main__.Held")["total"]["count"] == truth["held"]
    assert stacks(target) == sorted(truth["threads"])


def check_facts(target: str, release: str, pid: int | None = None) -> dict[str, dict[str, Any]]:
    """Check that the version is the release's and the interpreter a loaded object; return the facts."""
    found = facts(target)
    assert found["python"]["value"].startswith(f"{release}.") or found["python"]["value"] == release
    assert pid is None or found["interpreter"]["value"] in {mapped.path for mapped in maps(pid)}
    assert "is its own type" in found["interpreter"]["confirmed"]
    return found


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("release", since("3.6"))
def test_every_release(release: str, mode: str, kind: str, rng: random.Random, tmp_path: Path) -> None:
    """Check release, objects and threads with pymalloc and without it, with symbols and stripped."""
    with start(release, rng, tmp_path, mode, without_symbols(release, kind)) as target:
        found = check_facts(str(target.pid), release, target.pid)
        assert found["usedpools"]["source"].endswith("all empty" if mode == "malloc" else "with pools on them")
        assert (OWN in found) == (release in PUBLISHED)
        check(str(target.pid), tmp_path)
        assert ask("info", str(target.pid))["warnings"] == []


@by_name
@pytest.mark.parametrize("release", (RELEASE, "3.13"))
def test_on_another_malloc(release: str, name: str, rng: random.Random, tmp_path: Path) -> None:
    """Check the interpreter and its threads if all objects are in blocks that cannot be walked."""
    with start(release, rng, tmp_path, "malloc", {"LD_PRELOAD": library(name)}) as target:
        check_facts(str(target.pid), release, target.pid)
        check(str(target.pid), tmp_path)


@pytest.mark.cases(1)
@pytest.mark.parametrize("release", since("3.6"))
def test_without_any_pymalloc(release: str, rng: random.Random, tmp_path: Path) -> None:
    """Check that only the pools are unknown if no allocator of CPython's is found, as in a build without pymalloc.

    ``usedpools`` is overwritten; with ``PYTHONMALLOC=malloc`` the interpreter does not read it.
    """
    with start(release, rng, tmp_path, "malloc") as target:
        spoil(target, int(facts(str(target.pid))["usedpools"]["value"], 16), rng)
        found = check_facts(str(target.pid), release, target.pid)
        assert found["interpreter"]["source"].startswith("it exports PyType_Type")
        check(str(target.pid), tmp_path)
        assert ask("", str(target.pid))["ledger"]
        refused = gdbheap("pools", str(target.pid))
        assert refused.returncode == 5 and "no pymalloc was found" in refused.stderr
        core = target.as_form(KERNEL_CORE)
        check_facts(core, release)
        check(core, tmp_path)


def spoil(target: Running, usedpools: int, rng: random.Random) -> None:
    """Overwrite all list heads so that none can be recognised."""
    write(target.pid, usedpools, bytes(rng.randrange(1, 255) for _ in range(64 * 16)))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("release", since("3.6"))
def test_without_its_file(release: str, mode: str, rng: random.Random, tmp_path: Path) -> None:
    """Check a core without the interpreter's file: no symbol at all, but the same interpreter and threads."""
    command, environment, copy = copied(release, tmp_path)
    with start(release, rng, tmp_path, mode, environment) as target:
        if command[0] != interpreter_of_release(release).executable:
            pytest.skip("the interpreter is its own library")
        core = target.as_form(KERNEL_CORE)
    if copy is not None:
        copy.unlink()
    found = check_facts(core, release)
    if not ROOT_FOLDER and release in PUBLISHED:
        assert found["python"]["source"] == OWN and "cookie" in found[OWN]["source"]
    check(core, tmp_path)


def test_what_is_no_python(rng: random.Random, tmp_path: Path) -> None:
    """Check a program that only has python in its name: the reason is that its version is unknown."""
    source = tmp_path / "pythonic.c"
    source.write_text("#include <unistd.h>\nint main(void) { for (;;) pause(); }\n")
    compiled(source, "-o", tmp_path / "pythonic")
    with running([str(tmp_path / "pythonic")], tmp_path) as target:
        done = gdbheap("pyobjects", str(target.pid))
        assert done.returncode == 5 and "the version of Python is unknown" in done.stderr
        assert ask("", str(target.pid))["ledger"]


def write(pid: int, address: int, data: bytes) -> None:
    """Write into the memory of a process."""
    with open(f"/proc/{pid}/mem", "r+b", buffering=0) as memory:
        memory.seek(address)
        memory.write(data)


def read(pid: int, address: int) -> int:
    """Return a word of a process."""
    with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
        memory.seek(address)
        return int.from_bytes(memory.read(8), "little")


def place(base: int, release: str, group: str, field: str) -> int:
    """Return the address of a word of the interpreter's own table."""
    names = [(one, name) for one, fields in table("debug_offsets")["releases"][release].items() for name in fields]
    return base + 24 + 8 * names.index((group, field))


@pytest.mark.parametrize("release", PUBLISHED)
def test_published_equals_shipped(release: str, rng: random.Random, tmp_path: Path) -> None:
    """Check that all published offsets equal those of the debug information of another build of the release."""
    with start(release, rng, tmp_path, "pymalloc") as target:
        found = facts(str(target.pid))
    assert found[OWN]["source"] == "the symbol _PyRuntime"
    count = re.match(r"(\d+) fields are the same", found["object layouts"]["confirmed"])
    assert count is not None and int(count[1]) >= 27
    assert not [fact for fact in found if fact.startswith("offset of ")]


@pytest.mark.parametrize("form", [PROCESS, KERNEL_CORE])
@pytest.mark.parametrize("release", PUBLISHED)
def test_published_is_believed(release: str, form: str, rng: random.Random, tmp_path: Path) -> None:
    """Check that the interpreter's own table is preferred: with two offsets exchanged, files have functions' names;
    a warning and the facts name both."""
    with start(release, rng, tmp_path, "malloc") as target:
        base = int(facts(str(target.pid))[OWN]["value"], 16)
        places = [place(base, release, "code_object", field) for field in ("filename", "name")]
        first, second = (read(target.pid, at) for at in places)
        write(target.pid, places[0], second.to_bytes(8, "little"))
        write(target.pid, places[1], first.to_bytes(8, "little"))
        where = target.as_form(form)
        answer, found = ask("threads", where), facts(where)
    frames = [frame for thread in answer["rows"] for frame in thread["running"]]
    assert {"descend", "main"} <= {frame["file"] for frame in frames}
    assert all(frame["function"].endswith(".py") for frame in frames if frame["file"] == "descend")
    (warning,) = [text for text in answer["warnings"] if OWN in text]
    assert "co_filename" in warning and "co_name" in warning and "gdbheap uses the interpreter's table" in warning
    assert found["offset of co_name"]["value"] == str(first)
    assert f"the shipped table has {second}" in found["offset of co_name"]["source"]


def another_version(pid: int, base: int, _release: str) -> None:
    """Write the number of a version for which there is no table of offsets."""
    write(pid, base + 8, (0x030C05F0).to_bytes(8, "little"))


def another_patch(pid: int, base: int, _release: str) -> None:
    """Write another version of the same release."""
    write(pid, base + 8, (read(pid, base + 8) ^ 0x0400).to_bytes(8, "little"))


def another_cookie(pid: int, base: int, _release: str) -> None:
    """Write another beginning."""
    write(pid, base, b"xdebugpx")


def another_build(pid: int, base: int, _release: str) -> None:
    """Mark the build as free-threaded: then an object's type would be elsewhere."""
    write(pid, base + 16, (read(pid, base + 16) ^ 1).to_bytes(8, "little"))


def no_flag(pid: int, base: int, _release: str) -> None:
    """Write a flag that is neither yes nor no."""
    write(pid, base + 16, bytes(range(8)))


def outside(pid: int, base: int, release: str) -> None:
    """Write an offset beyond the end of its struct."""
    write(pid, place(base, release, "dict_object", "ma_keys"), (1 << 40).to_bytes(8, "little"))


def in_the_head(pid: int, base: int, release: str) -> None:
    """Write the offset of an object's type for a field."""
    write(pid, place(base, release, "list_object", "ob_item"), (8).to_bytes(8, "little"))


def uneven(pid: int, base: int, release: str) -> None:
    """Write an odd offset for a pointer."""
    write(pid, place(base, release, "thread_state", "next"), (9).to_bytes(8, "little"))


def twice(pid: int, base: int, release: str) -> None:
    """Write the same offset for two fields."""
    at = read(pid, place(base, release, "thread_state", "next"))
    write(pid, place(base, release, "thread_state", "interp"), at.to_bytes(8, "little"))


def huge(pid: int, base: int, release: str) -> None:
    """Write an impossible size for a struct."""
    write(pid, place(base, release, "unicode_object", "size"), (1 << 30).to_bytes(8, "little"))


def shifted(pid: int, base: int, release: str) -> None:
    """Shift all words from the types on by one, as in a release with one word more."""
    first, last = (place(base, release, *word) for word in (("pyobject", "size"), ("gc", "collecting")))
    words = [read(pid, at) for at in range(first, last, 8)]
    for index, word in enumerate(words):
        write(pid, first + 8 * (index + 1), word.to_bytes(8, "little"))


DAMAGE: list[Callable[[int, int, str], None]] = [
    another_version, another_patch, another_cookie, another_build, no_flag, outside, in_the_head, uneven, twice, huge,
    shifted,
]  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("release", PUBLISHED)
def test_published_is_damaged(
    release: str, damage: Callable[[int, int, str], None], rng: random.Random, tmp_path: Path
) -> None:
    """Check that a damaged table is refused with a warning, and that all answers are those of the shipped table."""
    with start(release, rng, tmp_path, "pymalloc") as target:
        base = int(facts(str(target.pid))[OWN]["value"], 16)
        damage(target.pid, base, release)
        found = check_facts(str(target.pid), release)
        assert found[OWN]["value"] == "rejected"
        (warning,) = [text for text in ask("info", str(target.pid))["warnings"] if OWN in text]
        assert "is damaged, so gdbheap uses its own table" in warning
        check(str(target.pid), tmp_path)


@pytest.mark.parametrize("release", PUBLISHED)
def test_published_at_random(release: str, rng: random.Random, tmp_path: Path) -> None:
    """Check that random words in the table let each command end with an answer or one clear line."""
    words = sum(map(len, table("debug_offsets")["releases"][release].values()))
    with start(release, rng, tmp_path, "pymalloc") as target:
        base = int(facts(str(target.pid))[OWN]["value"], 16)
        for _ in range(12):
            at = base + 24 + 8 * rng.randrange(words)
            before = read(target.pid, at)
            near = before ^ 8 << rng.randrange(8)
            write(target.pid, at, rng.choice([near, near, rng.getrandbits(64), 0]).to_bytes(8, "little"))
            for noun in ("info", "threads", "pyobjects"):
                done = said(noun, str(target.pid), "--json")
                assert done.returncode in (0, 1, 5) and "Traceback" not in done.stderr, (at - base, done.stderr)
            if rng.random() < 0.7:
                write(target.pid, at, before.to_bytes(8, "little"))
