"""Errors as documents, and sessions for programs: there is exactly one document for each question."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.gdb_side import GDB
from support.nouns import FOLLOWING, LIVE_ONLY, WRITING
from support.programs import GDBHEAP, PATIENCE, Running, c_program, gdbheap, running
from support.sessions import session

from gdbheap.commands.shell import line_words
from gdbheap.commands.surface.registry import COMMANDS
from gdbheap.errors import next_steps
from gdbheap.loader import SCRIPT

# The largest size of a document without --top, and of the text around it.
MOST = (64 << 10) + 200


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Yield a C process that allocates on request."""
    with running(c_program("steps", 7, 0), tmp_path_factory.mktemp("errors")) as started:
        yield started


def is_error(document: dict[str, Any], status: int) -> bool:
    """Return whether a document is that of an error with this status."""
    found = document.get("error", {})
    named = document["command"].split()[0] in ("heap", "gdbheap")
    return (
        named
        and document.keys() == {"command", "schema", "error"}
        and found.keys() == {"status", "what", "next"}
        and found["status"] == status
        and isinstance(found["what"], str)
        and all(isinstance(step, str) and step for step in found["next"])
    )


@pytest.mark.parametrize(
    ("line", "status", "name"),
    [
        ("holes {pid} --min=lots --json", 2, "heap holes"),
        ("holes 4194304 --json", 4, "heap holes"),
        ("holes /nowhere/core --json", 4, "heap holes"),
        ("--json", 2, "heap"),
        ("nonsense --json", 2, "heap"),
        ("at {pid} --json", 2, "heap at"),
        ("at {pid} 0x10 --json", 2, "heap at"),
        ("--json holes {pid} --bogus", 2, "heap holes"),
        ("pyobjects {pid} --json", 5, "heap pyobjects"),
        ("pools {pid} --json", 5, "heap pools"),
        ("calls /nowhere --json", 2, "gdbheap calls"),
        ("schema hols --json", 2, "gdbheap schema"),
        ("shell /nowhere/core --json", 4, "gdbheap shell"),
        ("map {pid} --svg=/dev/stdout --json", 2, "heap map"),
        ("snapshot {pid} - --json", 2, "heap snapshot"),
        ("growth --json -- /nowhere/program", 2, "heap growth"),
        ("trace --json --", 2, "gdbheap trace"),
    ],
)
def test_error_of_a_command(line: str, status: int, name: str, target: Running) -> None:
    """Check one document on standard output, the same status, and the line for people on standard error."""
    typed = line.format(pid=target.pid)
    done = gdbheap(*typed.split())
    found = json.loads(done.stdout)
    assert is_error(found, done.returncode) and done.stdout.count("\n") == 1, done
    assert (done.returncode, found["command"]) == (status, name), done
    if typed.split()[0] not in ("--json", "map", "snapshot"):
        plain = gdbheap(*typed.replace("--json", "").split())
        assert (plain.returncode, plain.stderr) == (status, done.stderr)
    assert done.stderr.count("\n") == 1 and done.stderr.rstrip("\n").endswith(found["error"]["what"]), done


def test_other_words_are_not_ours(target: Running) -> None:
    """Check that --json after -- belongs to the other program; without it standard output is empty."""
    for line in (["growth", "--", "/nowhere/program", "--json"], ["holes", str(target.pid), "--bogus"]):
        assert gdbheap(*line).stdout == ""


@pytest.mark.skipif(shutil.which(GDB) is None, reason="no gdb")
def test_error_in_gdb(target: Running) -> None:
    """Check that the document is on gdb's standard output, and the line on its standard error."""
    for line, status, name in (("holes", 4, "heap holes"), ("holes --min=lots", 2, "heap holes"), ("at", 2, "heap at")):
        command = [GDB, "-nx", "-batch", "-x", str(SCRIPT), "-ex", f"heap {line} --json"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
        found = json.loads(done.stdout)
        assert is_error(found, done.returncode) and (done.returncode, found["command"]) == (status, name), done
        assert found["error"]["what"] in done.stderr


def test_next_steps() -> None:
    """Check the next steps: the commands that a message quotes, once each; otherwise the text after its last colon."""
    assert next_steps("x: y (see 'gdbheap holes --help', 'gdbheap 1' too, 'gdbheap 1')") == [
        "gdbheap holes --help",
        "gdbheap 1",
    ]
    assert next_steps("it is a zombie: give a core") == ["give a core"]
    assert next_steps("gdbheap at: which address? gdbheap at 1 ADDRESS") == ["gdbheap at 1 ADDRESS"]
    assert next_steps("interrupted") == []


def memory_of(pid: int) -> dict[str, bytes]:
    """Return the contents of the private writable mappings of a process, by their lines."""
    found = {}
    with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
        for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
            if "rw-p" in line:
                start, end = (int(word, 16) for word in line.split()[0].split("-"))
                memory.seek(start)
                found[line] = memory.read(end - start)
    return found


def some_lines(rng: random.Random, count: int, target: Running) -> list[bytes]:
    """Return lines of which about half are wrong; none runs without end, calls into the process or ends the session."""
    left_out = {*FOLLOWING, *LIVE_ONLY, *WRITING, "diff", "map"}
    nouns = [noun for noun in line_words.OFFERED if noun not in left_out]
    stack = next(line for line in Path(f"/proc/{target.pid}/maps").read_text().splitlines() if line.endswith("[stack]"))
    address = hex(int(stack.split("-")[0], 16) + 16)
    right = [*(noun for noun in nouns if COMMANDS[noun].argument is None), f"at {address}", "", "# nothing", "help"]
    vocabulary = [*nouns, "--", "-", "--top=1", "--json", "0x10", "'", '"', "\\", "é", "heap", "--sort", "--min=lots"]

    def wrong() -> bytes:
        kind = rng.randrange(3)
        if kind == 0:
            return bytes(rng.choices([*range(1, 10), *range(11, 256)], k=rng.randrange(1, 60)))
        if kind == 1:
            return f"{rng.choice(nouns)} --bogus{rng.randrange(9)}".encode()
        return b" ".join(rng.choice(vocabulary).encode() for _ in range(rng.randrange(6)))

    lines = [rng.choice(right).encode() if rng.random() < 0.5 else wrong() for _ in range(count)]
    lines[rng.randrange(count)] = b"x" * (1 << 20)
    lines[rng.randrange(count)] = b"\xff\xfe \x80" * 9
    return [line for line in lines if not line.strip().startswith((b"quit", b"exit"))]


def test_many_lines(target: Running, rng: random.Random) -> None:
    """Check that each of 1,000 lines, half of them wrong, yields exactly one document of limited size, and that
    nothing is written to the target."""
    typed = some_lines(rng, 1000, target)
    before = memory_of(target.pid)
    command = [str(GDBHEAP), "shell", str(target.pid), "--json"]
    environment = {**os.environ, "GDBHEAP_DEBUG": ""}
    told = b"\n".join(typed) + b"\n"
    done = subprocess.run(command, input=told, capture_output=True, env=environment, timeout=5 * PATIENCE)
    replies = [json.loads(line) for line in done.stdout.splitlines()]
    assert [reply["line"] for reply in replies] == list(range(1, len(typed) + 1)), done.stderr[-500:]
    for line, reply in zip(typed, replies):
        assert reply.keys() in ({"line", "status", "answer"}, {"line", "status", "error"}), reply
        assert ("error" in reply) == (reply["status"] not in (0, 1)) or reply["status"] == 1, (line[:99], reply)
        assert "error" not in reply or reply["error"]["status"] == reply["status"]
        assert "a fault of gdbheap" not in json.dumps(reply), (line[:99], reply)
    wrong = sum("error" in reply for reply in replies)
    assert len(typed) // 4 < wrong < 3 * len(typed) // 4
    assert done.returncode == max(reply["status"] for reply in replies)
    after = memory_of(target.pid)
    assert after.keys() == before.keys()
    changed = sum(one != other for line in before for one, other in zip(before[line], after[line]))
    # The kernel writes the processor of a thread there (rseq).
    assert changed <= 32


def test_quit_and_what_ends_a_session(target: Running) -> None:
    """Check that quit is answered too, and that the following lines are not read."""
    done = gdbheap("shell", str(target.pid), "--json", input="sizes\nquit\nsizes\n")
    assert [json.loads(line)["line"] for line in done.stdout.splitlines()] == [1, 2] and done.returncode == 0
    assert gdbheap("shell", str(target.pid), "--json", input="").stdout == ""


def test_target_that_ends(tmp_path: Path) -> None:
    """Check that questions about copied memory are answered, that others give an error in their line, and that
    standard error is empty."""
    with running(c_program("steps", 8, 0), tmp_path) as ends, session(ends.pid, "--json") as opened:
        assert opened.process.stdin is not None and opened.process.stdout is not None

        def reply(line: str) -> Any:
            opened.type(line)
            return json.loads(opened.process.stdout.readline()) if opened.process.stdout else None

        first = reply("sizes")
        ends.close()
        for number, line in enumerate(("refresh", "growth --duration=1s", "stats"), 2):
            found = reply(line)
            assert (found["line"], found["status"], found["error"]["status"]) == (number, 4, 4), found
        with contextlib.suppress(KeyError):
            del first["line"]
        last = reply("sizes")
        assert last.pop("line") == 5 and last == first
        output, errors, status = opened.end()
    assert (output, errors, status) == ("", "", 4)
