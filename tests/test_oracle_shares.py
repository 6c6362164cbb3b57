"""``heap owners``: every block in use is in one row.

It is checked against the program's own report, the allocators' sums, and single chains of the graph.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from support.library import heap_of
from support.planted_holders import extension
from support.programs import (
    GCORE,
    PROCESS,
    ask,
    gdbheap,
    interpreter_of_release,
    python_program,
    release_program,
    running,
)
from support.services import SERVICES, Service, serving

from gdbheap.answers import shared_out
from gdbheap.answers.pyobjects import pyobjects
from gdbheap.contents.python.names.packages import Homes

# A block has a header, and a class of sizes.
LEAST, MOST = 1.0, 1.35


@pytest.mark.parametrize("release", ["3.8", "3.13"])
def test_holders_have_what_they_say(release: str, rng: random.Random, tmp_path: Path) -> None:
    """Check variables by their paths with the bytes that only they lead to, the bytes of a frame, and a package's
    code."""
    truth = tmp_path / "truth"
    command = release_program(release, "shared_out", rng.getrandbits(30), truth)
    with running(command, tmp_path) as target:
        for form in (PROCESS, GCORE):
            answer = ask("owners", target.as_form(form), "--top=all")
            rows = {row["path"]: row for row in answer["rows"]}
            known = json.loads(truth.read_text())
            local, shared = known.pop("local"), known.pop("shared")
            (in_frame,) = [row for name, row in rows.items() if "local variable local in main()" in name]
            for size, row in [*((size, rows[path]) for path, size in known.items()), (local, in_frame)]:
                assert LEAST * size <= row["bytes"] <= MOST * size, (row, size)
                assert row["parts"][0]["what"] in ("__main__.Item", "str", "int")
            code = rows["package warehouse"]
            assert {part["what"] for part in code["parts"]} <= {"function", "code", "str", "bytes", "tuple", "dict"}
            assert answer["total"]["bytes"] == sum(row["bytes"] for row in answer["rows"])
            assert answer["total"]["blocks"] == sum(row["blocks"] for row in answer["rows"])
            several = ask("retained", target.as_form(form))["rows"]
            (together,) = [row for row in several if row["address"] is None and row["type"] == "__main__.Item"]
            assert together["count"] == shared
            assert LEAST * known["sys.modules['__main__'].again"] <= together["retained"]
            assert sorted(together["other_holders"]) == [
                f"sys.modules['__main__'].{name}" for name in ("again", "both", "listed")
            ]


@pytest.mark.parametrize("release", ["3.11", "3.13"])
def test_what_a_module_of_c_holds(release: str, tmp_path: Path) -> None:
    """Check that a module holds its state, whose fields are unknown here."""
    script = "import os, ssl; kept = ssl.create_default_context(); os.read(0, 1)"
    with running([interpreter_of_release(release).executable, "-c", script], tmp_path) as target:
        names = [row["path"] for row in ask("owners", str(target.pid), "--top=all")["rows"]]
    assert not any(name.endswith(" holds it") for name in names)
    assert "what sys.modules ['_ssl'] holds" in names or release != "3.13"


@pytest.mark.parametrize("release", ["2.7", "3.11"])
def test_what_an_object_of_c_holds(release: str, tmp_path: Path) -> None:
    """Check one row, named by the object's type, for blocks that hang on an object to which only a library's data
    lead."""
    python = interpreter_of_release(release).executable
    script = (
        "import os, sys, planted_extension as own; holder, count, item = own.hold(6 << 20); own.hide(holder)\n"
        "del holder; sys.stderr.write(str(count)); sys.stderr.flush(); os.read(0, 1)"
    )
    with running([python, "-c", script], tmp_path, {"PYTHONPATH": str(extension(python))}) as target:
        rows = ask("owners", str(target.pid), "--top=all")["rows"]
        held = int(target.stderr)
    (row,) = [row for row in rows if "planted_extension.Holder" in row["path"]]
    assert row["path"].startswith("planted_extension.Holder in 'hidden' in planted_extension")
    assert held <= row["bytes"] <= held + 4096 and row is max(rows, key=lambda row: row["bytes"])


def test_rows_are_all_that_is_in_use(rng: random.Random, tmp_path: Path) -> None:
    """Check the sum against the allocators' used bytes, and each block's row against its own chain."""
    with running(
        python_program("stripped", "owners", rng.getrandbits(30), 500, tmp_path / "truth"), tmp_path
    ) as target:
        with heap_of(str(target.pid)) as heap:
            rows = shared_out.share_out(heap.python.paths)
            used = pyobjects(heap).all_used.bytes
            assert sum(row.bytes for row in rows) == used
            homes = Homes(heap.python.references)
            graph = heap.python.references.graph
            labels = {home: number for number, home in enumerate(dict.fromkeys(homes.seeds.values()))}
            seeds = {node: labels[home] for node, home in homes.seeds.items()}
            sums: Counter[int | None] = Counter()
            for share in graph.shares(list(seeds.items()), 0):
                sums[share.label if share.label < len(labels) else None] += share.group.bytes
            expected: Counter[int | None] = Counter()
            for node in heap.python.references.nodes(range(heap.python.references.first_root)):
                chain = graph.chain(node.id)
                label = next((seeds[number] for number in reversed(chain) if number in seeds), None)
                expected[label] += node.size if node.place == "block" else 0
            assert sums == expected


def test_number_of_variables(rng: random.Random, tmp_path: Path) -> None:
    """Check how many variables a row stands for, also where a single variable has a subscript."""
    command = release_program("3.11", "subscripted", rng.randrange(2000, 4000))
    with running(command, tmp_path) as target:
        rows = ask("owners", str(target.pid), "--top=4")["rows"]
    found = {row["path"].rpartition(".")[2]: row["variables"] for row in rows}
    assert found["SINGLE['only']"] == 1 and found["ALIKE[…]"] == 4
    assert all(row["variables"] == 0 for row in rows if not row["path"].startswith("sys.modules"))


def test_other_ways_to_ask(rng: random.Random, tmp_path: Path) -> None:
    """Check that --min has a default for single blocks and none for holders."""
    with running(
        python_program("stripped", "owners", rng.getrandbits(30), 500, tmp_path / "truth"), tmp_path
    ) as target:
        assert all(row["size"] >= 1 << 20 for row in ask("owners", str(target.pid), "--by=block")["rows"])
        assert ask("owners", str(target.pid), "--by=block", "--min=10K")["total"]["blocks"] > 0
        done = gdbheap("owners", str(target.pid), "--min=1M")
        assert done.returncode == 2 and "--by=block" in done.stderr
        text = gdbheap("owners", str(target.pid), "--top=3").stdout
        assert "  holder  " in text and "(more)" in text and "in use" in text


@pytest.mark.parametrize("service", [replace(one, size=one.size // 10) for one in SERVICES], ids=lambda one: one.title)
def test_ten_rows_explain_real_programs(service: Service, tmp_path: Path) -> None:
    """Check that the first ten rows, each with a name, have most of the bytes that a program uses."""
    with serving(service, tmp_path) as pid:
        answer = ask("owners", str(pid), "--top=10")
    assert sum(row["bytes"] for row in answer["rows"]) >= 0.8 * answer["total"]["bytes"]
    assert all(row["path"] for row in answer["rows"])
