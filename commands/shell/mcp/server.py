"""Serve ``gdbheap mcp`` over standard input and output. Its tools are first_page, ask, compare and help."""

from __future__ import annotations

import os
import signal
from collections.abc import Awaitable, Callable, Sequence
from importlib.resources import files
from inspect import cleandoc

from gdbheap import __version__
from gdbheap.commands.shell.mcp.answering import Asking, Question, Refused
from gdbheap.commands.shell.mcp.paging import part
from gdbheap.commands.shell.mcp.questions import COMPARED, HEAP, OFFERED, Value, command_named, words_of
from gdbheap.commands.surface.declaration import SHELL
from gdbheap.commands.surface.help import help_text
from gdbheap.commands.surface.registry import HEAP_NOUN, grouped
from gdbheap.errors import GdbheapError, Unsupported, UsageError

__all__ = ["MISSING", "OPTIONS", "serve", "skill"]

MISSING = "gdbheap mcp needs the Python package mcp, which is not installed next to gdbheap: pip install 'gdbheap[mcp]'"
CALLING, CONTENTS = "--allow-calls", "--with-contents"
OPTIONS = (CALLING, CONTENTS)
SKILL = "SKILL.md"
MOST_SECONDS = 600.0
MOST_CHARACTERS = 5000
Tool = Callable[..., Awaitable[str]]
# A client shows this text to its model before the first question.
INSTRUCTIONS = (
    "gdbheap finds where the memory of a process or of a core went. Call first_page with a pid first: it names the "
    "cause, the fix and the next commands. To run the shell command 'gdbheap NOUN PID --key=value', call "
    "ask(target=PID, command=NOUN, options={key: value}). help() explains how to find the cause of a symptom."
)


def serve(words: Sequence[str]) -> None:
    """Serve requests until standard input ends. Raises UsageError, Unsupported if the package mcp is missing."""
    unknown = [word for word in words if word not in OPTIONS]
    if unknown:
        raise UsageError(
            f"{SHELL} mcp: unrecognized arguments: {' '.join(unknown)} ({' and '.join(OPTIONS)} are known)"
        )
    try:
        from anyio import get_cancelled_exc_class, to_thread
        from mcp.server import MCPServer
        from mcp.server.mcpserver.exceptions import ToolError
        from mcp.types import ToolAnnotations
    except ImportError:
        raise Unsupported(MISSING) from None
    allows_calls = CALLING in words
    asking = Asking([] if CONTENTS in words else ["--no-text"])
    server = MCPServer(SHELL, instructions=INSTRUCTIONS, version=__version__, log_level="WARNING")
    reading = ToolAnnotations(read_only_hint=True, open_world_hint=False)
    maybe_calling = ToolAnnotations(read_only_hint=not allows_calls, destructive_hint=False, open_world_hint=False)

    def tool(annotations: ToolAnnotations) -> Callable[[Tool], Tool]:
        def added(answer: Tool) -> Tool:
            server.add_tool(
                answer, description=cleandoc(answer.__doc__ or ""), annotations=annotations, structured_output=False
            )
            return answer

        return added

    @tool(reading)
    async def first_page(target: str, offset: int = 0) -> str:
        """Show where the memory of a process went: verdict, holders, findings with their fix, next questions.

        gdbheap reads the process anew, which stops it for milliseconds to seconds.

        Args:
            target: the id of a process, or the path of a core file
            offset: the character from which to continue a long answer
        """
        return await _answered(lambda call: part(asking.page(call, _target(target)), offset))

    @tool(maybe_calling)
    async def ask(
        command: str,
        target: str = "",
        argument: str | None = None,
        options: dict[str, Value] | None = None,
        offset: int = 0,
    ) -> str:
        """Ask one question, such as owners, holes, retained, why, pyobjects. help("owners") explains a command.

        Args:
            command: the name of the command
            target: a process or a core, as it was at the last first_page or first ask; not for ps and doctor
            argument: the ADDRESS of why, refs and at; the QUERY of sql
            options: options of the command without hyphens, such as {"min": "1M", "top": 5, "path": true}
            offset: the character from which to continue a long answer
        """

        def answer(call: Question) -> str:
            asked = command_named(command)
            wanted = words_of(asked, argument, options or {}, allows_calls)
            if asked.needs.shell_only:
                if asked.argument is not None:
                    _target(target)
                return asking.once(call, [asked.noun, *([_target(target)] if target else []), *wanted])
            return asking.kept(call, _target(target), [asked.noun or HEAP, *wanted])

        return await _answered(lambda call: part(answer(call), offset))

    @tool(reading)
    async def compare(before: str, after: str = "", seconds: float = 30.0, offset: int = 0) -> str:
        """Show what changed: between two snapshots, cores or processes, or in one process during a wait.

        Args:
            before: the path of a snapshot or a core, or the id of a process
            after: the later snapshot, core or process; if missing, gdbheap reads the process in 'before' twice
            seconds: how long to wait between the two readings of one process
            offset: the character from which to continue a long answer
        """

        def answer(call: Question) -> str:
            if after:
                return asking.once(call, [COMPARED, _target(before), _target(after)])
            if not 0 < seconds <= MOST_SECONDS:
                raise UsageError(f"seconds must be more than 0 and at most {MOST_SECONDS:.0f}")
            return asking.growth(call, _target(before), seconds)

        return await _answered(lambda call: part(answer(call), offset))

    @tool(reading)
    async def help(topic: str = "", offset: int = 0) -> str:
        """Explain how to find a cause (no topic), list the commands ("commands"), or explain a command (its name)."""
        return await _answered(lambda _call: part(_help(topic), offset))

    async def _answered(answer: Callable[[Question], str]) -> str:
        """Return the result of ``answer``, which runs in a thread.

        If the client cancels or is gone, end the processes for which the thread waits.
        """
        call = Question()
        try:
            return await to_thread.run_sync(answer, call, abandon_on_cancel=True)
        except (GdbheapError, Refused) as error:
            raise ToolError(str(error)) from None
        except OSError as error:
            raise ToolError(error.strerror or str(error)) from None
        except get_cancelled_exc_class():
            call.cancel()
            raise

    def end(number: int, _frame: object) -> None:
        # The thread that reads standard input can only be ended together with the process.
        asking.abandon()
        os.write(2, f"gdbheap mcp: ended by {signal.Signals(number).name}\n".encode())
        os._exit(1)

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, end)
    try:
        server.run("stdio")
    finally:
        asking.close()


def skill() -> str:
    """Return SKILL.md, the text that says how to get from a symptom to its cause."""
    return files("gdbheap.commands.shell.mcp").joinpath(SKILL).read_text(encoding="utf-8")


def _target(word: str) -> str:
    if not word or word.startswith("-") or not word.isprintable() or len(word) > MOST_CHARACTERS:
        raise UsageError("target must be the id of a process, or the path of a file")
    return word


def _help(topic: str) -> str:
    if not topic:
        return skill()
    if topic == "commands":
        return "\n".join(grouped([HEAP_NOUN, *OFFERED], {}))
    command = command_named(topic)
    return help_text(command, command.shell_name, command.needs)
