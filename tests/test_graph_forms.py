"""``heap why`` on cores, in gdb, and of objects in other interpreters."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path

import pytest
from support.gdb_side import batch, documents, home, needs_gdb
from support.graphs import NO_EXPRESSION, check_chains, evaluated, explained, started, truth_of
from support.programs import GCORE, KERNEL_CORE, ONLY, ask, release_program, running, since

BUILD, SOME = ONLY or "stripped", 5
IN_ANOTHER = re.compile(r"  # in interpreter (\d+)\Z")


def some_of(truth: dict[str, list[int]]) -> dict[int, str]:
    """Return {address: structure} of the objects that have expressions."""
    return {address: name for name, some in truth.items() if name not in NO_EXPRESSION for address in some}


@pytest.mark.parametrize("form", [GCORE, KERNEL_CORE])
def test_in_cores(form: str, rng: random.Random, tmp_path: Path) -> None:
    """Check that the answer of a core equals that of the live process, whose expressions were evaluated."""
    with started(BUILD, tmp_path, "references", rng.getrandbits(32), 3000, SOME, tmp_path / "truth") as target:
        truth = truth_of(tmp_path)
        addresses = {address for some in truth.values() for address in some}
        live = explained(str(target.pid), addresses)
        if form == GCORE:
            found = explained(target.as_form(form), addresses)
        check_chains(target, truth, live, tmp_path)
        if form == KERNEL_CORE:
            found = explained(target.as_form(form), addresses)
        for address, name in some_of(truth).items():
            assert found[address].certain and found[address].expression == live[address].expression, name
            assert [one.address for one in found[address].rows] == [one.address for one in live[address].rows], name


@needs_gdb
def test_in_gdb(rng: random.Random, tmp_path: Path) -> None:
    """Check one object of each structure in gdb, by the expression that ``heap why`` prints."""
    with started(BUILD, tmp_path, "references", rng.getrandbits(32), 3000, 1, tmp_path / "truth") as target:
        addresses = list(some_of(truth_of(tmp_path)))
        commands = [f"heap why {address:#x} --json" for address in addresses]
        done = batch(["-p", str(target.pid)], commands, home(tmp_path / "home"))
        answers = documents(done)
        assert [answer["address"] for answer in answers] == addresses, done.stderr
        assert evaluated(target, [answer["expression"] for answer in answers], tmp_path) == addresses


@pytest.mark.parametrize("release", since("3.12"))
def test_in_other_interpreters(release: str, rng: random.Random, tmp_path: Path) -> None:
    """Check that the expression names its interpreter, and that it evaluates to the object there."""
    isolated, shared, path = rng.randrange(1, 4), rng.randrange(1, 3), tmp_path / "truth"
    command = release_program(release, "subreferences", rng.getrandbits(31), isolated, shared, path)
    with running(command, tmp_path) as target:
        files = {int(file.suffix[1:]): file for file in tmp_path.glob("truth.*")}
        truth: dict[int, list[int]] = {number: json.loads(file.read_text()) for number, file in files.items()}
        assert len(truth) == 1 + isolated + shared
        found = explained(str(target.pid), {address for some in truth.values() for address in some})
        for number, some in truth.items():
            expressions = [str(found[address].expression) for address in some]
            said = {mark and int(mark[1]) for mark in map(IN_ANOTHER.search, expressions)}
            assert said == {number or None}, (number, expressions[:3])
            Path(f"{path}.asked.{number}").write_text(json.dumps(expressions))
        target.go_on(f"{path}.asked")
        for number, some in truth.items():
            assert json.loads(Path(f"{path}.asked.{number}.answer").read_text()) == some, number
        one = truth[max(truth)][0]
        assert ask("why", str(target.pid), hex(one))["expression"] == found[one].expression
