"""``heap pyobjects --list``: exactly the objects that the program reports, and the sums of the table of types."""

from __future__ import annotations

import random
import re
from pathlib import Path
from typing import Any

import pytest
from support.programs import FORMS, KINDS, ask, gdbheap, python_program, running
from support.repr_programs import CUT, every_python, program, same, truth, values

from gdbheap.answers.instances import MAX_TEXTS

pytestmark = pytest.mark.cases(3)

OWN = "--type=__main__.*"
CLASS = re.compile(r"<(__main__\.\w+) object at ")


def by_type(rows: list[dict[str, Any]]) -> dict[str, tuple[int, int]]:
    """Return {type: (count, bytes)} of listed objects."""
    names = {row["type"] for row in rows}
    sizes = {name: [row["size"] for row in rows if row["type"] == name] for name in names}
    return {name: (len(found), sum(found)) for name, found in sizes.items()}


@every_python
def test_every_object_is_listed(python: str, rng: random.Random, tmp_path: Path) -> None:
    """Check that each instance that the program wrote down is listed once, with its type, and with its text unless the
    text is cut.
    """
    with running(values(python, rng, tmp_path, 400), tmp_path) as target:
        answer = ask("pyobjects", str(target.pid), OWN, "--list")
        table = ask("pyobjects", str(target.pid), OWN)
    found = {row["address"]: row for row in answer["rows"]}
    assert len(found) == len(answer["rows"]) == answer["count"] == table["total"]["count"]
    written = {address: (match[1], text) for address, text in truth(tmp_path) if (match := CLASS.match(text))}
    assert written
    for address, (name, text) in written.items():
        assert found[address]["type"] == name
        shown = found[address]["text"]
        if found[address] in answer["rows"][MAX_TEXTS:]:
            continue
        assert CUT in (shown or "") or same(text, shown, address)
    assert by_type(answer["rows"]) == {row["type"]: (row["count"], row["own"]) for row in table["rows"]}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", KINDS)
def test_list_equals_the_table(kind: str, form: str, rng: random.Random, tmp_path: Path) -> None:
    """Check that sums by type equal the table's in any order, and that a cut list keeps the totals and the first
    rows."""
    arguments = (rng.getrandbits(32), 1000, 20_000, tmp_path / "truth")
    with running(python_program(kind, "population", *arguments), tmp_path) as target:
        target.go_on()
        name = target.as_form(form)
        table = ask("pyobjects", name, OWN)
        answers = {key: ask("pyobjects", name, OWN, "--list", f"--sort={key}") for key in KEYS}
        top = rng.randrange(1, 60)
        cut = {key: ask("pyobjects", name, OWN, "--list", f"--sort={key}", f"--top={top}") for key in KEYS}
    expected = {row["type"]: (row["count"], row["own"]) for row in table["rows"]}
    for key, answer in answers.items():
        assert by_type(answer["rows"]) == expected
        assert (answer["count"], answer["total"]["own"]) == (table["total"]["count"], table["total"]["own"])
        assert answer["total"]["buffers"] == sum(row["buffers"] for row in answer["rows"])
        assert answer["rows"] == sorted(answer["rows"], key=KEYS[key])
        assert cut[key]["rows"] == answer["rows"][:top]
        assert (cut[key]["count"], cut[key]["total"]) == (answer["count"], answer["total"])


KEYS: dict[str, Any] = {
    "together": lambda row: (-row["size"] - row["buffers"], row["address"]),
    "bytes": lambda row: (-row["size"], row["address"]),
    "buffers": lambda row: (-row["buffers"], row["address"]),
    "type": lambda row: (row["type"], -row["size"] - row["buffers"], row["address"]),
    "address": lambda row: row["address"],
}


@every_python
def test_items_that_look_like_an_object(python: str, rng: random.Random, tmp_path: Path) -> None:
    """Check that the bytes of a buffer claim nothing: objects to which they point stay objects, and keep their
    buffers."""
    count = rng.randrange(1, 300)
    with running(program(python, "lookalikes", count), tmp_path) as target:
        answer = ask("pyobjects", str(target.pid), OWN, "--list")
        table = ask("pyobjects", str(target.pid), OWN)
    assert [(row["type"], row["count"]) for row in table["rows"]] == [("__main__.Real", count)]
    assert by_type(answer["rows"]) == {"__main__.Real": (count, table["total"]["own"])}
    assert table["total"]["buffers"] >= count * 7 * 8


@pytest.mark.parametrize("options", [["--sort=address"], ["--list", "--sort=count"]])
def test_orders_that_are_none(options: list[str], rng: random.Random, tmp_path: Path) -> None:
    """Check that a type has no address and an object no count: one line, exit status 2."""
    with running(python_program(KINDS[1], "pools", rng.getrandbits(32), 300), tmp_path) as target:
        done = gdbheap("pyobjects", str(target.pid), *options)
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1), done.stderr


@pytest.mark.parametrize("options", [[], ["--list"]])
def test_nothing_matches(options: list[str], rng: random.Random, tmp_path: Path) -> None:
    """Check that a pattern that matches no type's name is answered with a sentence."""
    with running(python_program(KINDS[1], "pools", rng.getrandbits(32), 300), tmp_path) as target:
        done = gdbheap("pyobjects", str(target.pid), "--type=no.such.*", *options)
    assert (done.returncode, done.stdout.count("\n")) == (0, 1), done.stdout
    assert "matches" in done.stdout
