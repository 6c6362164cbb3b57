"""Tensors, checked by torch in the program itself, of every dtype that it has."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any

import pytest
from support.installed import python_with_torch
from support.programs import GCORE, PROCESS, SOURCES, Running, ask, gdbheap, running

KEYS = ("shape", "dtype", "device", "nbytes", "bytes", "data_address", "views")


@pytest.fixture(scope="module")
def held(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Running, dict[str, Any]]]:
    """Yield the program and its own figures."""
    folder = tmp_path_factory.mktemp("tensors")
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    with running(
        [python_with_torch(), str(SOURCES / "tensors.py"), str(seed), str(folder / "truth")], folder
    ) as target:
        yield target, json.loads((folder / "truth").read_text())


def check(answer: dict[str, Any], truth: dict[str, Any]) -> None:
    """Check that exactly these tensors are listed, with their figures."""
    rows = {row["path"]: row for row in answer["rows"] if row["what"] == "Tensor"}
    wanted = {one["path"]: one for one in truth["tensors"] if one["nbytes"]}
    for path, one in wanted.items():
        assert {key: rows[path][key] for key in KEYS} == {key: one[key] for key in KEYS}, path
    sparse = rows[truth["sparse"]]
    assert (sparse["bytes"], sparse["nbytes"], sparse["device"]) == (None, None, "cpu")
    assert rows.keys() == {*wanted, truth["sparse"]}
    assert {row["address"] for row in answer["rows"]}.isdisjoint([*truth["false"], *truth["views"]])
    own = sum(row["bytes"] - row["repeated"] for row in answer["rows"] if row["bytes"] is not None)
    assert answer["total"]["bytes"] == own
    assert any(f"{len(truth['false'])} objects that look like arrays" in warning for warning in answer["warnings"])


def test_tensors_are_what_they_say(held: tuple[Running, dict[str, Any]]) -> None:
    """Check shape, dtype, device, bytes of the items and of the storage, address, and views; false ones are left
    out."""
    target, truth = held
    check(ask("owners", target.as_form(PROCESS), "--by=array", "--top=all", "--max-stop=0"), truth)


def test_tensors_of_a_core(held: tuple[Running, dict[str, Any]], rng: random.Random) -> None:
    """Check the tensors in a core, and the tensor of an address."""
    target, truth = held
    core = target.as_form(GCORE)
    check(ask("owners", core, "--by=array", "--top=all"), truth)
    (address, shape, dtype) = rng.choice(truth["places"])
    found = ask("at", core, hex(address))["array"]
    assert (found["what"], found["shape"], found["dtype"]) == ("Tensor", shape, dtype)


def test_tensors_in_words(held: tuple[Running, dict[str, Any]]) -> None:
    """Check that memory elsewhere is mentioned, and the memory that a small part keeps."""
    target, _truth = held
    lines = gdbheap("owners", str(target.pid), "--by=array", "--top=all", "--max-stop=0").stdout.splitlines()
    (meta,), (freed,), (part,) = (
        [line for line in lines if f".{name} (" in line] for name in ("META", "FREED", "PART")
    )
    assert "no values (meta device)" in meta
    assert "its storage is empty" in freed
    assert "the values take " in part and " of the storage" in part
