"""Answers are records that can be written and read back; a document identifies its process."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.library import heap_of
from support.nouns import GRAPHS, PLAIN
from support.programs import KINDS, Running, ask, python_program, running

from gdbheap.answers.accounting.records import SCHEMA, from_json, to_json
from gdbheap.commands.surface.parser import parse
from gdbheap.commands.surface.registry import COMMANDS
from gdbheap.errors import UsageError
from gdbheap.findings.finding import Finding
from gdbheap.first_page.ledger import Ledger, Line
from gdbheap.host.identity import CONTAINER
from gdbheap.snapshots.difference import Trend


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Yield a Python process that holds objects."""
    seed = random.randrange(1 << 30)
    with running(python_program(KINDS[0], "pools", seed, 2000), tmp_path_factory.mktemp("records")) as found:
        yield found


@pytest.mark.parametrize("noun", [*PLAIN, *GRAPHS], ids=lambda noun: noun or "heap")
def test_read_back(noun: str, target: Running) -> None:
    """Check that each answer equals the one read from its JSON."""
    command = COMMANDS[noun]
    options = parse(command, [], command.shell_name, ())[0]
    with heap_of(str(target.pid)) as heap:
        answer = command.answer(heap, options)
    text = json.dumps(answer, default=to_json)
    assert from_json(type(answer), json.loads(text)) == answer


def test_what_is_missing_and_what_is_more() -> None:
    """Check that keys of a later version are ignored, that records of an earlier one get the defaults, and that
    nothing else is accepted."""
    line = {"id": "a", "parent": None, "name": "b", "virtual": 1, "resident": None, "swapped": 2}
    assert from_json(Line, {**line, "unheard": [1]}) == Line("a", None, "b", 1, None, 2)
    finding = {"id": "f", "bytes": 3, "text": "t", "advice": "", "figures": {"x": 1}, "commands": ["y"]}
    assert from_json(Finding, finding) == Finding("f", 3, {"x": 1}, ["y"])
    wrong: list[tuple[Any, Any]] = [
        (Line, [line]), (Line, {**line, "virtual": "1"}), (Line, {**line, "virtual": True}),
        (Line, {**line, "id": None}),
        (Line, {key: line[key] for key in line if key != "name"}), (Ledger, {"rss": 3, "ledger": [], "findings": []}),
        (Ledger, {"rss": {"bytes": 1, "swap": 0, "source": ""}, "ledger": [line, 7], "findings": []}),
    ]  # fmt: skip
    for kind, content in wrong:
        with pytest.raises(UsageError):
            from_json(kind, content)
    with pytest.raises(TypeError, match="object"):
        to_json(object())


def test_which_process(target: Running) -> None:
    """Check the start of the process, the boot, and the machine, which are the same in each answer."""
    document = ask("arenas", str(target.pid))
    about = document["target"]
    assert document["schema"] == SCHEMA and ask("arenas", str(target.pid)) == document
    assert about["host"] == os.uname().nodename
    assert about["boot_id"] == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    seconds = about["start_time"] / os.sysconf("SC_CLK_TCK")
    since_boot = float(Path("/proc/uptime").read_text().split()[0])
    assert 0 <= since_boot - seconds < 3600
    assert "container" in about


def test_container() -> None:
    """Check container ids in the names of control groups, as Docker, Kubernetes and podman write them."""
    number = "0123456789abcdef" * 4
    for line in (
        f"0::/system.slice/docker-{number}.scope",
        f"12:memory:/docker/{number}",
        f"0::/kubepods.slice/kubepods-pod1.slice/cri-containerd-{number}.scope",
        f"0::/machine.slice/libpod-{number}.scope/container",
    ):
        found = CONTAINER.search(f"1:name=systemd:/x\n{line}\n".encode())
        assert found is not None and found[1].decode() == number, line
    for line in ("0::/", "0::/user.slice/user-1000.slice", f"0::/x{number}"):
        assert CONTAINER.search(line.encode()) is None, line


def test_words_of_a_later_release() -> None:
    """Check that an unknown word for one of a few known words is accepted from a later release's file, and that a
    number is not."""
    trend = {"kind": "page", "name": "a", "looks": [1], "rate": 0.5}
    assert from_json(Trend, trend).name == "a"
    with pytest.raises(UsageError):
        from_json(Trend, {**trend, "kind": 3})
