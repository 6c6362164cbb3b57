"""``heap check-advice``: a program's settings at its start, by the kernel's records, and those in force."""

from __future__ import annotations

import ctypes
import random
from pathlib import Path
from typing import Any

import pytest
from support.programs import KERNEL_CORE, PROCESS, ask, c_program, gdbheap, interpreter_of, running

from gdbheap.allocators.glibc.start_settings import number_of

NAMES = {
    "MALLOC_MMAP_THRESHOLD_": "mmap_threshold",
    "MALLOC_TRIM_THRESHOLD_": "trim_threshold",
    "MALLOC_ARENA_MAX": "arena_max",
}
# As setproctitle does, write the title over the arguments, and zeros over the rest and the environment.
TITLE = """
import ctypes, sys
fields = open("/proc/self/stat").read().rpartition(")")[2].split()
start, end = int(fields[45]), int(fields[48])
ctypes.memset(start, 0, end - start)
ctypes.memmove(start, b"a title", 7)
sys.stdin.readline()
"""


def by_name(answer: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the settings of an answer by their names."""
    return {row["name"]: row for row in answer["settings"]}


@pytest.mark.parametrize("form", [PROCESS, KERNEL_CORE])
def test_settings_that_took(form: str, rng: random.Random, tmp_path: Path) -> None:
    """Check that the answer has the settings of /proc/PID/environ, that mp_ has the same values, and that others are
    not set."""
    given = {name: str(rng.randrange(1, 300) * 4096) for name in rng.sample(sorted(NAMES), rng.randrange(1, 4))}
    with running(c_program("faults", rng.getrandbits(30), "healthy", tmp_path / "none"), tmp_path, given) as target:
        environ = Path(f"/proc/{target.pid}/environ").read_bytes().split(b"\0")
        answer = ask("check-advice", target.as_form(form))
    for name, field in NAMES.items():
        row = by_name(answer)[name]
        assert row["value"] == given.get(name) and row["field"] == field
        assert (f"{name}={row['value']}".encode() in environ) == (name in given)
        assert row["took"] is (True if name in given else None)
        assert name not in given or (row["in_force"] == int(given[name]) and row["how"] == "set")
    assert answer["knows_environment"]


def test_before_and_after_advice(rng: random.Random, tmp_path: Path) -> None:
    """Check that holes of large buffers lead to advice, and that the setting is in force without such holes after a
    restart."""
    command = c_program("faults", rng.getrandbits(30), "large", tmp_path / "none")
    with running(command, tmp_path) as target:
        (finding,) = (row for row in ask("", str(target.pid))["findings"] if row["id"] == "large-chunks")
        before = ask("check-advice", str(target.pid))
    assert finding["environment"] == {"MALLOC_MMAP_THRESHOLD_": "131072"}
    assert [row["id"] for row in before["findings"]] == ["large-chunks"]
    row = by_name(before)["MALLOC_MMAP_THRESHOLD_"]
    assert (row["value"], row["took"], row["how"], row["bytes"]) == (None, None, "risen", finding["bytes"])
    with running(command, tmp_path, finding["environment"]) as target:
        after = by_name(ask("check-advice", str(target.pid)))["MALLOC_MMAP_THRESHOLD_"]
        words = gdbheap("check-advice", str(target.pid)).stdout
    assert (after["took"], after["in_force"], after["bytes"]) == (True, 128 << 10, 0)
    assert "MALLOC_MMAP_THRESHOLD_=131072 is set and active: mmap_threshold is 128.0 KiB" in words


def test_settings_that_did_not_take(rng: random.Random, tmp_path: Path) -> None:
    """Check that mallopt() calls of a program lead to a value in force that differs from the value at its start."""
    command = c_program("faults", rng.getrandbits(30), "lowered", tmp_path / "none")
    with running(command, tmp_path, {"MALLOC_TRIM_THRESHOLD_": "4194304"}) as target:
        row = by_name(ask("check-advice", str(target.pid)))["MALLOC_TRIM_THRESHOLD_"]
    assert (row["value"], row["in_force"], row["took"]) == ("4194304", 128 << 10, False)


@pytest.mark.parametrize("given", [{}, {"MALLOC_TRIM_THRESHOLD_": "131072"}])
def test_no_variable_against_mallopt(given: dict[str, str], rng: random.Random, tmp_path: Path) -> None:
    """Check that no variable is advised if the program sets a threshold itself, but is advised if a variable set it."""
    command = c_program("faults", rng.getrandbits(30), "raised", tmp_path / "none")
    with running(command, tmp_path, given) as target:
        (finding,) = ask("", str(target.pid))["findings"]
        row = by_name(ask("check-advice", str(target.pid)))["MALLOC_TRIM_THRESHOLD_"]
        words = gdbheap("", str(target.pid)).stdout
    assert (finding["id"], finding["environment"]) == ("main-top", {})
    assert row["in_force"] == 1 << 30 and row["took"] is (False if given else None)
    assert "let the program call mallopt(M_TRIM_THRESHOLD, 131072)" in words
    assert "MALLOC_TRIM_THRESHOLD_=" not in words
    command = c_program("faults", rng.getrandbits(30), "top", tmp_path / "none")
    with running(command, tmp_path, {"MALLOC_TRIM_THRESHOLD_": str(1 << 30)}) as target:
        (finding,) = ask("", str(target.pid))["findings"]
    assert finding["environment"] == {"MALLOC_TRIM_THRESHOLD_": "131072"}


def test_tunables(rng: random.Random, tmp_path: Path) -> None:
    """Check that a tunable has the same effect as its variable."""
    tunables = {"GLIBC_TUNABLES": "glibc.malloc.arena_max=3:glibc.malloc.mmap_threshold=0x50000"}
    with running(c_program("faults", 1, "healthy", tmp_path / "none"), tmp_path, tunables) as target:
        rows = by_name(ask("check-advice", str(target.pid)))
    arenas, threshold = rows["MALLOC_ARENA_MAX"], rows["MALLOC_MMAP_THRESHOLD_"]
    assert (arenas["by"], arenas["in_force"], arenas["took"]) == ("GLIBC_TUNABLES", 3, True)
    assert (threshold["by"], threshold["in_force"], threshold["took"]) == ("GLIBC_TUNABLES", 0x50000, True)


def test_hugetlb(tmp_path: Path) -> None:
    """Check the setting of huge-pages, which is only a tunable, and that the requested value is in force."""
    rows = []
    for value in ("0", "1"):
        tunables = {"GLIBC_TUNABLES": f"glibc.malloc.hugetlb={value}"}
        with running(c_program("faults", 1, "healthy", tmp_path / "none"), tmp_path, tunables) as target:
            rows.append(by_name(ask("check-advice", str(target.pid)))["glibc.malloc.hugetlb"])
            words = gdbheap("check-advice", str(target.pid)).stdout
    assert [(row["value"], row["by"], row["memory"]) for row in rows] == [
        ("0", "GLIBC_TUNABLES", "huge-pages"), ("1", "GLIBC_TUNABLES", "huge-pages")
    ]  # fmt: skip
    assert rows[0]["took"] and rows[0]["in_force"] == 0
    # If the kernel gives huge pages by default, malloc does not have to request them.
    assert rows[1]["took"] == (rows[1]["in_force"] == 1)
    assert "Through GLIBC_TUNABLES, glibc.malloc.hugetlb=1 is set" in words


@pytest.mark.parametrize("form", [PROCESS, KERNEL_CORE])
def test_a_title_over_the_environment(form: str, tmp_path: Path) -> None:
    """Check that no setting counts as missing if the program wrote its title over the environment."""
    command = [interpreter_of("stripped"), "-I", "-c", TITLE]
    with running(command, tmp_path, {"MALLOC_ARENA_MAX": "3"}) as target:
        assert not Path(f"/proc/{target.pid}/environ").read_bytes().strip(b"\0")
        where = target.as_form(form)
        answer, words = ask("check-advice", where), gdbheap("check-advice", where).stdout
    assert not answer["knows_environment"] and {row["value"] for row in answer["settings"]} == {None}
    assert "Whether MALLOC_ARENA_MAX was set is unknown: at most 3 arenas may be made" in words
    assert "is not set:" not in words


def test_an_empty_environment(tmp_path: Path) -> None:
    """Check that a program that was started with an empty environment has no settings."""
    program, *arguments = c_program("faults", 1, "healthy", tmp_path / "none")
    with running(["/usr/bin/env", "-i", program, *arguments], tmp_path) as target:
        assert not Path(f"/proc/{target.pid}/environ").read_bytes()
        answer = ask("check-advice", str(target.pid))
    assert answer["knows_environment"] and {row["value"] for row in answer["settings"]} == {None}


def test_values_are_shown_in_one_line(tmp_path: Path) -> None:
    """Check that control characters of a value do not reach the terminal, and that --no-text shows only numbers."""
    secret = "4096hunter2\n\x1b[31mred"
    given = {"MALLOC_TRIM_THRESHOLD_": secret, "MALLOC_ARENA_MAX": "3"}
    with running(c_program("faults", 1, "healthy", tmp_path / "none"), tmp_path, given) as target:
        shown, hidden = (gdbheap("check-advice", str(target.pid), *more).stdout for more in ([], ["--no-text"]))
        answer = ask("check-advice", str(target.pid), "--no-text")
    assert "\x1b" not in shown and "MALLOC_TRIM_THRESHOLD_=4096hunter2\\n\\x1b[31mred is set" in shown
    assert "hunter2" not in hidden and "MALLOC_ARENA_MAX=3 is set and active" in hidden
    assert by_name(answer)["MALLOC_TRIM_THRESHOLD_"]["value"] == f"<str of {len(secret)}>"


def test_numbers_as_the_c_library_reads_them(rng: random.Random) -> None:
    """Check that leading digits count, in the base that their prefix gives. The oracle is strtoul itself."""
    strtoul = ctypes.CDLL(None).strtoul
    strtoul.argtypes, strtoul.restype = [ctypes.c_char_p, ctypes.c_void_p, ctypes.c_int], ctypes.c_ulong
    digits = "0|00|0x|0X1f|017|089|128k|131072|4 5|1_000|+7|-1| \t12|-0x10|99999999999999999999".split("|")
    digits += ["".join(rng.choice("0123456789abxXk ") for _ in range(6)) for _ in range(2000)]
    for text in digits:
        number = number_of(text)
        assert (number or 0) == strtoul(text.encode(), None, 0), text
        assert (number is None) == (not text.strip(" \t+-")[:1].isdigit()), text
