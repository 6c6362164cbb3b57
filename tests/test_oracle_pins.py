"""``heap pins``: a program that frees what it is told to free gives back what was promised, by the kernel's count."""

from __future__ import annotations

import json
import random
import struct
from pathlib import Path
from typing import Any

import kernel
import pytest
from programs import Running, ask, c_program, release_program, running

IN_THREAD, BLOCKED, FOREIGN = 1, 2, 4
# What freeing and malloc_trim() touch themselves: a stack, an arena for the thread that frees, chunks that are merged.
OWN = 64 * 1024
ROWS = 500
WITHOUT_CACHE = {"GLIBC_TUNABLES": "glibc.malloc.tcache_count=0"}


def told(target: Running, pointers: list[int]) -> int:
    """Have the program free these and trim; return by how much RssAnon shrank."""
    path = target.directory / "told"
    path.write_bytes(struct.pack(f"<{len(pointers)}Q", *pointers))
    before = kernel.anonymous(target.pid)
    target.go_on(str(path))
    return before - kernel.anonymous(target.pid)


def owned(answer: dict[str, Any], held: set[int]) -> list[dict[str, Any]]:
    """Return the pins of which every block is one of the program's own."""
    return [
        pin
        for pin in answer["pins"]
        if len(pin["members"]) == pin["blocks"] and {member["address"] for member in pin["members"]} <= held
    ]


def check(answer: dict[str, Any]) -> None:
    """No block is in two groups; the sums are those of the groups; each keeps twice its own bytes."""
    seen: set[int] = set()
    for pin in answer["pins"]:
        addresses = {member["address"] for member in pin["members"]}
        assert pin["address"] in addresses and not addresses & seen, pin
        seen |= addresses
        if len(pin["members"]) == pin["blocks"]:
            assert sum(member["size"] for member in pin["members"]) == pin["size"]
        assert pin["would_free"] >= 2 * pin["size"]
    for row in answer["sums"]:
        of_row = [pin for pin in answer["pins"] if pin["allocator"] == row["allocator"]]
        sums = [len(of_row), *(sum(pin[key] for pin in of_row) for key in ("blocks", "size", "would_free"))]
        assert sums == [row[key] for key in ("groups", "blocks", "bytes", "would_free")]
    kept = [pin["would_free"] - pin["size"] for pin in answer["pins"]]
    assert kept == sorted(kept, reverse=True)


@pytest.mark.parametrize("mode", [0, IN_THREAD, BLOCKED, FOREIGN])
@pytest.mark.parametrize("threads", [1, 4])
def test_glibc(threads: int, mode: int, rng: random.Random, tmp_path: Path) -> None:
    """Main arena and threads' arenas: the pins that keep the most, freed in one go."""
    table = tmp_path / "table"
    kept = rng.choice([8, 20, 60])
    command = c_program("pins", rng.getrandbits(30), threads, 60_000 // threads, kept, 30_000, mode, table)
    with running(command, tmp_path, None if mode == IN_THREAD else WITHOUT_CACHE) as target:
        answer = ask("pins", str(target.pid))
        held = set(struct.unpack(f"<{table.stat().st_size // 8}Q", table.read_bytes()))
        told(target, [])
        assert ask("trim", str(target.pid))["predicted"] == 0
        top = owned(answer, held)[:ROWS]
        actual = told(target, [member["address"] for pin in top for member in pin["members"]])
    check(answer)
    promised = sum(pin["would_free"] for pin in top)
    assert promised > 10 * OWN, "nothing to speak of is pinned"
    assert abs(actual - promised) <= max(OWN, promised // 20), (promised, actual, kept)


@pytest.mark.parametrize("release", ["3.9", "3.11", "3.13"])
def test_pymalloc(release: str, rng: random.Random, tmp_path: Path) -> None:
    """Arenas that few objects keep: dropping those frees the arenas' pages."""
    truth = tmp_path / "truth"
    command = release_program(release, "pinned_arenas", rng.getrandbits(30), rng.choice([300, 1000, 4000]), truth)
    with running(command, tmp_path) as target:
        answer = ask("pins", str(target.pid), "--allocator=pymalloc")
        head = objects_offset(answer, json.loads(truth.read_text()))
        top = owned(answer, {address - head for address in json.loads(truth.read_text())})
        path = target.directory / "told"
        path.write_text(json.dumps([member["address"] + head for pin in top for member in pin["members"]]))
        before = kernel.anonymous(target.pid)
        target.go_on(str(path))
        actual = before - kernel.anonymous(target.pid)
    check(answer)
    assert {pin["allocator"] for pin in answer["pins"]} == {"pymalloc"}
    kinds = {kind["what"]: kind for kind in answer["kinds"]}
    assert max(kinds, key=lambda what: kinds[what]["would_free"]) == "__main__.Left"
    promised = sum(pin["would_free"] for pin in top)
    assert promised > 10 * OWN, "nothing to speak of is pinned"
    assert abs(actual - promised) <= promised // 20, (promised, actual)


def objects_offset(answer: dict[str, Any], objects: list[int]) -> int:
    """Return how far into its block an object starts: the one distance that takes most of them to a member."""
    members = {member["address"] for pin in answer["pins"] for member in pin["members"]}
    return max(range(0, 48, 8), key=lambda head: sum(address - head in members for address in objects))
