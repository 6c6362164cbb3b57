"""``heap diff``: exactly the known growth of a program between two snapshots, to the block and the byte."""

from __future__ import annotations

import random
import struct
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from support import kernel
from support.populations import check_changes
from support.programs import (
    FREE_THREADED,
    GCORE,
    KERNEL_CORE,
    PROCESS,
    RELEASES,
    Running,
    ask,
    c_program,
    gdbheap,
    release_program,
    running,
)

pytestmark = pytest.mark.cases(3)

MINIMUM_HOLE = 1 << 20


def keep(target: Running, path: Path, form: str = PROCESS, *options: str) -> str:
    """Write a snapshot of the target in one of its forms; return its file."""
    done = gdbheap("snapshot", target.as_form(form), str(path), *options)
    assert done.returncode == 0, done.stderr
    return str(path)


def of_types(answer: dict[str, Any]) -> dict[str, tuple[int, int, int]]:
    """Return {type: (count, bytes, buffers)}."""
    return {row["type"]: (row["count"], row["own"], row["buffers"]) for row in answer["types"]}


@pytest.mark.parametrize("form", [PROCESS, KERNEL_CORE])
@pytest.mark.parametrize("release", [*RELEASES, *FREE_THREADED])
def test_types(release: str, form: str, rng: random.Random, tmp_path: Path) -> None:
    """Check every population to the object and the byte, with its buffers, and no other type; the second may be a
    core."""
    arguments = (rng.getrandbits(32), 1500, 20_000, tmp_path / "truth")
    with running(release_program(release, "population", *arguments), tmp_path) as target:
        before = keep(target, tmp_path / "before.heap")
        target.go_on()
        live = ask("diff", before, str(target.pid))
        check_changes(of_types(live), target, tmp_path / "truth", release)
        after = keep(target, tmp_path / "after.heap", form)
    assert of_types(ask("diff", before, after)) == of_types(live)


@pytest.mark.parametrize("form", [PROCESS, GCORE, KERNEL_CORE])
def test_blocks_of_c(form: str, rng: random.Random, tmp_path: Path) -> None:
    """Check blocks by size and number, a mapped one, arenas of threads, and a hole; RSS is the kernel's."""
    with running(c_program("leaks", rng.getrandbits(30), tmp_path / "table"), tmp_path) as target:
        told = [kernel.rollup(target.pid)[0]]
        before = keep(target, tmp_path / "before.heap")
        told.append(kernel.rollup(target.pid)[0])
        target.go_on()
        told.append(kernel.rollup(target.pid)[0])
        after = keep(target, tmp_path / "after.heap", form)
        told.append(kernel.rollup(target.pid)[0] if form == PROCESS else 0)
        answer = ask("diff", before, after)
    *kinds, mapped, threads, hole, hole_size = struct.unpack("<10Q", (tmp_path / "table").read_bytes())
    sizes = {(row["allocator"], row["size"]): row["count"] for row in answer["sizes"]}
    for size, count in zip(kinds[::2], kinds[1::2]):
        assert sizes["glibc", size] == count
    assert sizes["glibc", mapped] == 1
    lines = {row["id"]: row for row in answer["ledger"]}
    assert lines["glibc.mmapped"]["virtual"] == mapped
    assert [row["state"] for row in answer["arena_changes"]].count("new") == threads
    assert {row["state"] for row in answer["arena_changes"] if row["index"] == 0} == {"changed"}
    assert answer["same_process"]
    new = {(row["address"], row["size"]) for row in answer["holes"] if row["state"] == "new"}
    assert new & {(hole, hole_size)} == {row for row in new if row[1] >= MINIMUM_HOLE}
    if form == PROCESS:
        # Pages of files may be loaded or dropped in between.
        rss = [look["rss"] for look in answer["compared"]]
        assert min(told[:2]) <= rss[0] <= max(told[:2]) and min(told[2:]) <= rss[1] <= max(told[2:])
        assert answer["rss"] == rss[1] - rss[0]
        roots = [row for row in answer["ledger"] if row["parent"] is None]
        assert sum(row["resident"] for row in roots) == answer["rss"]


def test_owner_and_trend(rng: random.Random, tmp_path: Path) -> None:
    """Check that the list that holds everything has its path, and that its growth in retained bytes is the new
    types; with three snapshots, steady growth has its rate, and the limit its time."""
    count = rng.randrange(3000, 9000)
    with running(release_program("3.11", "growing", count), tmp_path) as target:
        looks = [keep(target, tmp_path / "0.heap")]
        for number in (1, 2):
            target.go_on()
            looks.append(keep(target, tmp_path / f"{number}.heap"))
        answer = ask("diff", *looks, "--limit=1T")
        two = ask("diff", *looks[:2])
    assert of_types(answer)["__main__.Leaked"][0] == 2 * count == 2 * of_types(two)["__main__.Leaked"][0]
    owner = next(row for row in answer["owners"] if row["path"] == "sys.modules['__main__'].keeper.kept")
    assert len(owner["looks"]) == 3 and owner["looks"] == sorted(owner["looks"])
    leaked = next(row for row in answer["types"] if row["type"] == "__main__.Leaked")
    assert owner["retained"] >= leaked["bytes"]
    trend = {(row["kind"], row["name"]): row for row in answer["trend"]}
    seconds = answer["compared"][-1]["time"] - answer["compared"][0]["time"]
    row = trend["type", "__main__.Leaked"]
    assert row["rate"] == pytest.approx((row["looks"][-1] - row["looks"][0]) / seconds)
    left = (1 << 40) - answer["compared"][-1]["rss"]
    assert answer["seconds_left"] == pytest.approx(left / answer["rss"] * seconds)
    assert two["trend"] == []


@pytest.mark.parametrize("release", ["3.11"])
def test_two_processes(release: str, rng: random.Random, tmp_path: Path) -> None:
    """Check two runs of a program: objects are matched by their paths, and holes are not compared."""
    count = rng.randrange(3000, 9000)
    with running(release_program(release, "growing", count), tmp_path) as target:
        before = keep(target, tmp_path / "before.heap")
    with running(release_program(release, "growing", count), tmp_path) as target:
        target.go_on()
        answer = ask("diff", before, str(target.pid))
    assert not answer["same_process"] and answer["holes"] == []
    assert of_types(answer)["__main__.Leaked"][0] == count
    assert "sys.modules['__main__'].keeper.kept" in [row["path"] for row in answer["owners"]]


def test_growing(rng: random.Random, tmp_path: Path) -> None:
    """Check that ``heap --since`` names the type, its exact number and the list; a snapshot of the same moment shows
    no growth, and another process is not compared."""
    count = rng.randrange(60_000, 90_000)
    with running(release_program("3.11", "growing", count), tmp_path) as target:
        before = keep(target, tmp_path / "before.heap")
        target.go_on()
        answer = ask("", str(target.pid), "--since", before)
        again = ask("", str(target.pid), "--since", keep(target, tmp_path / "again.heap"))
    (found,) = [row for row in answer["findings"] if row["id"] == "growing"]
    assert found["figures"]["count"] == count and "__main__.Leaked" in found["text"]
    assert "sys.modules['__main__'].keeper.kept retains" in found["text"]
    assert found["commands"] == [f"gdbheap diff {before} {target.pid}"]
    assert "growing" not in [row["id"] for row in again["findings"]]
    with running(release_program("3.11", "growing", count), tmp_path) as target:
        other = ask("", str(target.pid), "--since", before)
    assert any("another process" in warning for warning in other["warnings"])


@pytest.mark.parametrize("form", [PROCESS, KERNEL_CORE])
def test_blocks(form: str, rng: random.Random, tmp_path: Path) -> None:
    """Check the comparison block by block: new blocks are the planted ones, and earlier ones remain; in C and in
    Python."""
    with running(c_program("leaks", rng.getrandbits(30), tmp_path / "table"), tmp_path) as target:
        before = keep(target, tmp_path / "before.heap", PROCESS, "--blocks")
        target.go_on()
        after = keep(target, tmp_path / "after.heap", form, "--blocks")
        answer = ask("diff", before, after)
    *kinds, mapped, _threads, _hole, _size = struct.unpack("<10Q", (tmp_path / "table").read_bytes())
    came = {row["size"]: row["new"] for row in answer["block_changes"] if row["type"] is None}
    assert [came[size] for size in kinds[::2]] == kinds[1::2] and came[mapped] == 1
    assert not any(row["gone"] for row in answer["block_changes"])

    count = rng.randrange(3000, 9000)
    with running(release_program("3.11", "growing", count), tmp_path) as target:
        target.go_on()
        before = keep(target, tmp_path / "before.heap", PROCESS, "--blocks")
        target.go_on()
        live = ask("diff", before, str(target.pid))
        after = keep(target, tmp_path / "after.heap", form, "--blocks")
    for answer in (live, ask("diff", before, after)):
        (row,) = [row for row in answer["block_changes"] if row["type"] == "__main__.Leaked"]
        assert (row["new"], row["still_there"], row["gone"]) == (count, count, 0)
        assert sum(row["new"] - row["gone"] for row in answer["block_changes"]) == sum(
            row["count"] for row in answer["sizes"]
        )
    assert live["block_changes"] and ask("diff", before, before)["block_changes"] == []


@pytest.mark.parametrize("release", ["3.8", "3.11", "3.13"])
def test_holders(release: str, rng: random.Random, tmp_path: Path) -> None:
    """Check that the only holder of the new blocks is named: a list, a dict, the object with both, a variable of a
    running function; blocks without a holder are marked so. From files and live."""
    count = rng.randrange(2000, 5000)
    with running(release_program(release, "held", count), tmp_path) as target:
        before = keep(target, tmp_path / "before.heap", PROCESS, "--blocks")
        target.go_on()
        live = ask("diff", before, str(target.pid))
        after = keep(target, tmp_path / "after.heap", PROCESS, "--blocks")
    keeper = "sys.modules['__main__'].keeper"
    wanted = {
        "InList": ("list", f"{keeper}.kept"),
        "InDict": ("dict", f"{keeper}.table"),
        "InBoth": ("__main__.Keeper", keeper),
        "InNone": ("unreachable", None),
    }
    for answer in (live, ask("diff", before, after)):
        found: Counter[tuple[str, str, str | None]] = Counter()
        for row in answer["block_changes"]:
            for held in row["new_holders"]:
                found[str(row["type"]), held["type"], held["path"]] += held["count"]
        for name, (kind, path) in wanted.items():
            of_type = {key[1:]: value for key, value in found.items() if key[0] == f"__main__.{name}"}
            # The collector's list of objects begins in the interpreter's data, and stacks still have some words of the
            # loop that made the objects.
            roots = sum(of_type.pop(key) for key in list(of_type) if key[0] == "root")
            assert roots <= count // 10 and of_type == {(kind, path): count - roots}, name
        ((local, number),) = ((key, value) for key, value in found.items() if key[0] == "__main__.InLocal")
        assert number == count and local[1] == "list" and "local" in str(local[2])


def test_owners_by_address(tmp_path: Path) -> None:
    """Check that an object that one snapshot names by a key, and the other without contents, counts as one object."""
    with running(release_program("3.11", "growing", 4000), tmp_path) as target:
        target.go_on()
        before = keep(target, tmp_path / "before.heap")
        target.go_on()
        after = keep(target, tmp_path / "after.heap", PROCESS, "--with-contents")
    rows = ask("diff", before, after)["owners"]
    addresses = [row["address"] for row in rows]
    assert len(set(addresses)) == len(addresses)
    kept = next(row for row in rows if row["path"] == "sys.modules['__main__'].keeper.kept")
    assert kept["state"] == "changed"


def test_no_holders(rng: random.Random, tmp_path: Path) -> None:
    """Check that no holder is named without a graph, for a program without Python."""
    with running(c_program("leaks", rng.getrandbits(30), tmp_path / "table"), tmp_path) as target:
        before = keep(target, tmp_path / "before.heap", PROCESS, "--blocks")
        target.go_on()
        answer = ask("diff", before, keep(target, tmp_path / "after.heap", PROCESS, "--blocks"))
    assert answer["block_changes"] and all(row["new_holders"] is None for row in answer["block_changes"])
