"""Answers for programs that speak the Model Context Protocol; the client is the protocol's own."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from support.programs import GDBHEAP, KINDS, PATIENCE, Running, c_program, gdbheap, python_program, running

from gdbheap.commands.shell.mcp.paging import MOST, part
from gdbheap.commands.shell.mcp.questions import CALLS, OFFERED, ONCE, command_named, words_of
from gdbheap.commands.surface.registry import COMMANDS
from gdbheap.errors import GdbheapError, UsageError

needs_mcp = pytest.mark.skipif(importlib.util.find_spec("mcp") is None, reason="no mcp beside gdbheap (gdbheap[mcp])")
TOOLS = ["ask", "compare", "first_page", "help"]
# A word that no table has.
SECRET = "xyzzy"


def asked(calls: Sequence[tuple[str, dict[str, Any]]], *words: str) -> list[tuple[bool, str]]:
    """Return the answers of a server with these arguments to calls of tools: whether each is an error, and its text."""
    from mcp import ClientSession, StdioServerParameters
    from mcp.client.stdio import stdio_client

    async def talk() -> list[tuple[bool, str]]:
        server = StdioServerParameters(command=str(GDBHEAP), args=["mcp", *words], env=dict(os.environ))
        async with stdio_client(server) as streams, ClientSession(*streams) as session:
            await session.initialize()
            assert sorted(tool.name for tool in (await session.list_tools()).tools) == TOOLS
            found = []
            for name, arguments in calls:
                answer = await session.call_tool(name, arguments)
                text = "".join(getattr(content, "text", "") for content in answer.content)
                assert len(text.encode()) <= MOST + 100
                found.append((bool(answer.is_error), text))
            return found

    return asyncio.run(asyncio.wait_for(talk(), PATIENCE))


@pytest.fixture
def holding(tmp_path: Path) -> Iterator[Running]:
    """Yield a process with secrets in keys and strings."""
    with running(python_program(KINDS[0], "secret_texts", SECRET, 2000), tmp_path) as target:
        yield target


@needs_mcp
def test_a_shell_says_the_same(holding: Running) -> None:
    """Check that the tools answer what the commands print, at one moment, and that errors have the next step."""
    pid = str(holding.pid)
    page, holes, owners, wrong, gone, listed, advice, programs = asked([
        ("first_page", {"target": pid}),
        ("ask", {"command": "holes", "target": pid, "options": {"min": "64K", "top": 3}}),
        ("ask", {"command": "heap owners", "target": pid, "options": {"--top": 4}}),
        ("ask", {"command": "hols", "target": pid}),
        ("first_page", {"target": str(int(Path("/proc/sys/kernel/pid_max").read_text()) - 1)}),
        ("help", {"topic": "commands"}),
        ("help", {}),
        ("ask", {"command": "ps", "options": {"top": 3}}),
    ])  # fmt: skip
    for found, words in (
        (page, [pid]),
        (holes, ["holes", pid, "--min=64K", "--top=3"]),
        (owners, ["owners", pid, "--top=4"]),
    ):
        shown = gdbheap(*words, "--no-text").stdout
        # The age, and the change of RSS meanwhile, depend on the moment.
        assert not found[0] and found[1].splitlines()[:8] == shown.splitlines()[:8]
    assert wrong[0] and "did you mean 'holes'" in wrong[1]
    assert gone[0] and "there is no process" in gone[1]
    assert all(f"  {noun} " in listed[1] for noun in OFFERED if noun != "heap")
    assert "first page" in advice[1] and not programs[0] and "program" in programs[1]


@needs_mcp
def test_contents_stay_out(holding: Running) -> None:
    """Check that nothing of strings and keys is shown, unless the server is started for that."""
    pid = str(holding.pid)
    calls: list[tuple[str, dict[str, Any]]] = [
        ("first_page", {"target": pid}),
        *(("ask", {"command": noun, "target": pid}) for noun in ("owners", "retained", "duplicates", "threads")),
        ("ask", {"command": "chunks", "target": pid}),
        ("ask", {"command": "sql", "target": pid, "argument": "select * from blocks limit 50"}),
        ("compare", {"before": pid, "seconds": 0.1}),
    ]
    assert not any(SECRET in text for _, text in asked(calls))
    assert any(SECRET in text for _, text in asked(calls, "--with-contents"))


@needs_mcp
def test_an_argument_is_no_option(holding: Running, tmp_path: Path) -> None:
    """Check that an argument that looks like an option writes no file, and that the session continues."""
    kept = tmp_path / "precious"
    kept.write_text("precious")
    pid = str(holding.pid)
    options = [f"--folded={kept}", f"--svg={kept}", f"-o={kept}", "--folded=/dev/stdout", "--json", ""]
    calls: list[tuple[str, dict[str, Any]]] = [
        ("ask", {"command": "retained", "target": pid, "argument": argument, "options": {"top": 1}})
        for argument in options
    ]
    calls += [("ask", {"command": "heap heap", "target": pid}), ("ask", {"command": "owners", "target": pid})]
    calls += [("first_page", {"target": "x" * 1_000_000})]
    *refused, page, owners, long = asked(calls)
    assert all(is_error and "option" in text for is_error, text in refused)
    assert kept.read_text() == "precious" and not page[0] and not owners[0], (page, owners)
    assert long[0] and "target" in long[1]


def children(pid: int) -> list[int]:
    """Return the children of all threads of a process."""
    return [
        int(word) for task in Path(f"/proc/{pid}/task").iterdir() for word in (task / "children").read_text().split()
    ]


def since(is_so: Callable[[], bool]) -> None:
    """Wait until the condition holds."""
    until = time.monotonic() + PATIENCE
    while not is_so():
        assert time.monotonic() < until
        time.sleep(0.02)


@needs_mcp
@pytest.mark.parametrize("way", ["SIGTERM", "SIGINT", "SIGHUP", "the end of its input"])
def test_ends_at_once(way: str, holding: Running, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that the server ends at once, also during a question, with all processes that it started, and without
    the files that it wrote."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    server, ask = _by_hand()
    assert "resident" in ask("first_page", target=str(holding.pid))
    message = {"name": "compare", "arguments": {"before": str(holding.pid), "seconds": 600}}
    assert server.stdin is not None
    request = {"jsonrpc": "2.0", "id": 77, "method": "tools/call", "params": message}
    server.stdin.write(json.dumps(request).encode() + b"\n")
    server.stdin.flush()
    # Wait until the first reading is done: a session and, for a moment, the process that takes the snapshot.
    since(lambda: bool(list(folder.glob("*/before.heap"))))
    started = children(server.pid)
    if way.startswith("SIG"):
        server.send_signal(getattr(signal, way))
    else:
        server.stdin.close()
    # The server would wait for ten minutes.
    server.wait(PATIENCE)
    assert server.returncode is not None
    assert started and not any(Path(f"/proc/{child}/exe").exists() for child in started)
    assert list(folder.iterdir()) == []


@needs_mcp
def test_a_cancelled_question_gives_way(holding: Running) -> None:
    """Check that the next question is answered at once."""
    server, ask = _by_hand()
    message = {"name": "compare", "arguments": {"before": str(holding.pid), "seconds": 600}}
    assert server.stdin is not None
    for request in (
        {"jsonrpc": "2.0", "id": 77, "method": "tools/call", "params": message},
        {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 77}},
    ):
        server.stdin.write(json.dumps(request).encode() + b"\n")
        server.stdin.flush()
        time.sleep(0.5)
    assert "resident" in ask("first_page", target=str(holding.pid))
    server.kill()
    server.wait()


@needs_mcp
def test_calls_must_be_allowed(tmp_path: Path) -> None:
    """Check that a server that only reads refuses to call functions, and that one with that permission does."""
    with running(c_program("holes", 1, 10, 100_000, 1, 0, tmp_path / "table"), tmp_path) as target:
        call = ("ask", {"command": "stats", "target": str(target.pid)})
        trim = ("ask", {"command": "trim", "target": str(target.pid), "options": {"yes": True}})
        for is_error, text in asked([call, trim]):
            assert is_error and "--allow-calls" in text
        for is_error, text in asked([call, trim], "--allow-calls"):
            assert not is_error, text
        # Under a seccomp filter a call may be answered by SIGSYS, which ends the process.
        deadly = ("ask", {"command": "trim", "target": str(target.pid), "options": {"yes": True, "seccomp": True}})
        ((is_error, text),) = asked([deadly], "--allow-calls")
        assert is_error and "--seccomp" in text


@needs_mcp
def test_a_target_that_ends(tmp_path: Path) -> None:
    """Check that cached answers continue, that the next page says that the target is gone, and that another target
    is answered."""
    with running(python_program(KINDS[0], "secret_texts", "text", 50), tmp_path) as other:
        with running(python_program(KINDS[0], "secret_texts", "text", 50), tmp_path) as target:
            first = str(target.pid)
            server, ask = _by_hand()
            assert "resident" in ask("first_page", target=first)
        assert "The process has ended" in ask("ask", command="owners", target=first)
        assert "there is no process" in ask("first_page", target=first)
        assert "resident" in ask("first_page", target=str(other.pid))
        children = Path(f"/proc/{server.pid}/task/{server.pid}/children")
        kept = [int(word) for task in Path(f"/proc/{server.pid}/task").iterdir()
                for word in (task / "children").read_text().split()]  # fmt: skip
        assert children.exists() and kept
        server.kill()
        server.wait()
    deadline = time.monotonic() + PATIENCE
    while any(Path(f"/proc/{pid}").exists() and "Z" not in Path(f"/proc/{pid}/stat").read_text() for pid in kept):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def _by_hand() -> tuple[subprocess.Popen[bytes], Any]:
    """Return a server, and a function that asks it without a client."""
    server = subprocess.Popen([str(GDBHEAP), "mcp"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert server.stdin is not None and server.stdout is not None
    count = iter(range(1, 1000))

    def send(method: str, parameters: dict[str, Any], number: int | None) -> None:
        message = {"jsonrpc": "2.0", "method": method, "params": parameters}
        assert server.stdin is not None
        server.stdin.write(json.dumps({**message, **({} if number is None else {"id": number})}).encode() + b"\n")
        server.stdin.flush()

    def call(method: str, parameters: dict[str, Any]) -> dict[str, Any]:
        number = next(count)
        send(method, parameters, number)
        assert server.stdout is not None
        while (answer := json.loads(server.stdout.readline())).get("id") != number:
            pass
        found: dict[str, Any] = answer["result"]
        return found

    client = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
    call("initialize", client)
    send("notifications/initialized", {}, None)
    return server, lambda tool, **given: call("tools/call", {"name": tool, "arguments": given})["content"][0]["text"]


def test_without_the_package() -> None:
    """Check that one line says what to install, and that help and advice work without the package."""
    code = (
        "import sys; sys.modules['mcp'] = None; from gdbheap.commands.shell.main import main; main(['mcp']) == 5 or 1/0"
    )
    done = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, timeout=PATIENCE)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (0, "", 1) and "gdbheap[mcp]" in done.stderr
    assert "--allow-calls" in gdbheap("mcp", "--help").stdout
    assert gdbheap("mcp", "--wrong").returncode == 2
    skill = gdbheap("mcp", "--skill").stdout
    assert all(f"\n  {noun} " in skill for noun in COMMANDS if noun)
    page = Path(__file__).parent.parent / "commands" / "shell" / "mcp" / "SKILL.md"
    assert skill == page.read_text(), "scripts/skill.py --write"


@pytest.mark.parametrize(
    ("command", "argument", "options", "said"),
    [
        ("owners", None, {"svg": "x.svg"}, "writes a file"),
        ("owners", None, {"o": "x.svg", "format": "svg"}, "no option"),
        ("owners", None, {"min": "1M\nheap trim --yes"}, "control character"),
        ("owners", None, {"no_text": False, "json": True}, "cannot be chosen here"),
        ("owners", "x", {}, "takes no argument"),
        ("why", None, {}, "needs ADDRESS"),
        ("holes", None, {"mim": 1}, "did you mean '--min'"),
        ("holes", None, {"min": "some"}, "holes"),
        ("trim", None, {"yes": True}, "--allow-calls"),
        ("growth", None, {"duration": 1}, "--allow-calls"),
        ("catch", "malloc", {}, "--allow-calls"),
        ("retained", "--folded=x", {}, "must not be empty or an option"),
        ("retained", "-o=x", {"format": "svg"}, "must not be empty or an option"),
        ("holes", None, {"clone": True}, "no option"),
        ("why", "9" * 20_000, {}, "more than 10,000 characters"),
        ("snapshot", None, {}, "not offered here"),
        ("record", None, {}, "not offered here"),
        ("trace", None, {}, "not offered here"),
        ("diff", None, {}, "the tool compare"),
    ],
)
def test_refused(command: str, argument: str | None, options: dict[str, Any], said: str) -> None:
    """Check that a server refuses wrong arguments before anything is opened."""
    with pytest.raises(GdbheapError, match=said):
        words_of(command_named(command), argument, options, False)


def test_what_is_offered_only_reads() -> None:
    """Check that no command that is offered without permission writes a file, or needs anything but a target."""
    for noun in set(OFFERED) - set(CALLS) - set(ONCE):
        command = command_named(noun)
        try:
            words = words_of(command, "0x10" if command.argument else None, {}, False)
        except UsageError as error:
            raise AssertionError(noun) from error
        assert not any(word.startswith("-") for word in words)


def test_parts(rng: random.Random) -> None:
    """Check that the parts of a text add up to the text, and that none is too long."""
    alphabet = "abc\n é漢🎈"
    for length in (0, 1, MOST, rng.randrange(MOST, 5 * MOST)):
        text = "".join(rng.choice(alphabet) for _ in range(length))
        found, offset = "", 0
        while offset < len(text):
            shown = part(text, offset)
            assert len(shown.encode()) <= MOST
            rest, _, told = shown.rpartition("(")
            if not told.endswith("smaller top)"):
                found += shown
                break
            found += rest
            offset = int(told.partition("offset=")[2].partition(",")[0])
            assert offset == len(found)
        assert found == text
    with pytest.raises(UsageError):
        part("abc", 4)
