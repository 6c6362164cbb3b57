"""The tools of ``gdbheap mcp``, on standard input and output."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib.resources import files
from inspect import cleandoc

from gdbheap import __version__
from gdbheap.commands.shell.mcp.asking import Asking, Refused
from gdbheap.commands.shell.mcp.paging import part
from gdbheap.commands.shell.mcp.questions import COMPARED, HEAP, OFFERED, ONCE, Value, command_named, words_of
from gdbheap.commands.surface.declaration import SHELL
from gdbheap.commands.surface.help import help_text
from gdbheap.commands.surface.registry import HEAP_NOUN, grouped
from gdbheap.errors import GdbheapError, Unsupported, UsageError

__all__ = ["MISSING", "OPTIONS", "serve", "skill"]

MISSING = "mcp needs the package mcp, which is not installed beside gdbheap: pip install 'gdbheap[mcp]'"
CALLING, CONTENTS, SHOWN = "--allow-calls", "--with-contents", "--skill"
OPTIONS = (CALLING, CONTENTS)
SKILL = "SKILL.md"
MOST_SECONDS = 600.0
# The text that a client shows its model before any question.
INSTRUCTIONS = (
    "Finds where the memory of a process, or of the core of one, went: call first_page with a pid first. It names the "
    "cause, the fix and the next commands; 'gdbheap NOUN PID --key=value' there is ask(target=PID, command=NOUN, "
    "options={key: value}) here. help() explains how to go from a symptom to a cause."
)


def serve(words: Sequence[str]) -> None:
    """Serve requests until standard input ends. Raises UsageError, Unsupported if the package mcp is missing."""
    unknown = [word for word in words if word not in OPTIONS]
    if unknown:
        raise UsageError(
            f"{SHELL} mcp: unrecognized arguments: {' '.join(unknown)} ({' and '.join(OPTIONS)} are known)"
        )
    try:
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

    def tool(annotations: ToolAnnotations) -> Callable[[Callable[..., str]], Callable[..., str]]:
        def added(answer: Callable[..., str]) -> Callable[..., str]:
            server.add_tool(
                answer, description=cleandoc(answer.__doc__ or ""), annotations=annotations, structured_output=False
            )
            return answer

        return added

    @tool(reading)
    def first_page(target: str, offset: int = 0) -> str:
        """Show where the memory of a process went: verdict, holders, findings with their fix, what to ask next.

        The process is looked at anew, and stands for milliseconds to seconds.

        Args:
            target: the id of a process, or the path of a core file
            offset: where to go on in a long answer
        """
        return _answered(lambda: part(asking.page(_target(target)), offset))

    @tool(maybe_calling)
    def ask(
        command: str,
        target: str = "",
        argument: str | None = None,
        options: dict[str, Value] | None = None,
        offset: int = 0,
    ) -> str:
        """Ask one question, such as owners, holes, retained, why, pyobjects. help("owners") explains a command.

        Args:
            command: the name of the command
            target: a process or a core, which is kept from the last first_page or ask on; not for ps and doctor
            argument: the ADDRESS of why, refs and at; the QUERY of sql
            options: options of the command without hyphens, as {"min": "1M", "top": 5, "clone": true}
            offset: where to go on in a long answer
        """

        def answer() -> str:
            asked = command_named(command)
            wanted = words_of(asked, argument, options or {}, allows_calls)
            if asked.noun in ONCE:
                return asking.once([asked.noun, *([_target(target)] if target else []), *wanted])
            return asking.kept(_target(target), [asked.noun or HEAP, *wanted])

        return _answered(lambda: part(answer(), offset))

    @tool(reading)
    def compare(before: str, after: str = "", seconds: float = 30.0, offset: int = 0) -> str:
        """Show what changed: between two snapshots, cores or processes, or in one process while it is waited for.

        Args:
            before: the path of a snapshot or a core, or the id of a process
            after: the later one; without it, before is a process, which is looked at twice
            seconds: how long to wait between the two looks at one process
            offset: where to go on in a long answer
        """

        def answer() -> str:
            if after:
                return asking.once([COMPARED, _target(before), _target(after)])
            if not 0 < seconds <= MOST_SECONDS:
                raise UsageError(f"seconds: more than 0, at most {MOST_SECONDS:.0f}")
            return asking.growth(_target(before), seconds)

        return _answered(lambda: part(answer(), offset))

    @tool(reading)
    def help(topic: str = "", offset: int = 0) -> str:
        """Explain how to find a cause (no topic), list the commands ("commands"), or explain one by its name."""
        return _answered(lambda: part(_help(topic), offset))

    def _answered(answer: Callable[[], str]) -> str:
        try:
            return answer()
        except (GdbheapError, Refused) as error:
            raise ToolError(str(error)) from None

    try:
        server.run("stdio")
    finally:
        asking.close()


def skill() -> str:
    """Return the text on how to find a cause from a symptom (SKILL.md)."""
    return files("gdbheap.commands.shell.mcp").joinpath(SKILL).read_text(encoding="utf-8")


def _target(word: str) -> str:
    if not word or word.startswith("-") or not word.isprintable():
        raise UsageError("target: the id of a process, or the path of a file")
    return word


def _help(topic: str) -> str:
    if not topic:
        return skill()
    if topic == "commands":
        return "\n".join(grouped([HEAP_NOUN, *OFFERED], {}))
    command = command_named(topic)
    return help_text(command, command.shell_name, command.needs)
