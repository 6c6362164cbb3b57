"""``gdbheap stats PID``, ``gdbheap trim PID --yes``: gdb makes the call into the process, the shell prints what came of
it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

from gdbheap.commands import stats, trim
from gdbheap.commands.answering import About, Told
from gdbheap.commands.declaration import Command, Options
from gdbheap.errors import GdbheapError, NoTarget, NotPermitted, Unsupported, UsageError, one_line
from gdbheap.loader import SCRIPT
from gdbheap.objects.disclosure import NO_TEXT
from gdbheap.target.target import Damage

__all__ = ["through_gdb"]

REBUILT = {"stats": stats.rebuilt, "trim": trim.rebuilt}

ERRORS: dict[int, type[GdbheapError]] = {2: UsageError, 3: NotPermitted, 4: NoTarget, 5: Unsupported}


def through_gdb(command: Command[Any], words: Sequence[str], options: Options, target: str) -> Told:
    """Have gdb attach, call and detach. ``words``: the command's own options, as they are typed. Raises what gdb's side
    failed with, in one line."""
    line = [*command.name.split(), "--json", f"--sort={options.sort}", f"--top={options.top or 0}", *words]
    if options.no_text:
        line.append(NO_TEXT)
    if options.seccomp:
        line.append("--seccomp")
    output, errors, status = _gdb(command, ["-p", target, "-x", str(SCRIPT), "-ex", " ".join(line)])
    content = _document(output)
    if content is None:
        raise ERRORS.get(status, GdbheapError)(_last_line(errors) or f"gdb ended with status {status} and said nothing")
    damage = [Damage(**record) for record in content["damage"]]
    about = About(content["target"], content["warnings"], damage, False, None)
    answer = REBUILT[command.noun](content)
    return Told(command, options, about, answer, answer)


def _gdb(command: Command[Any], arguments: list[str]) -> tuple[str, str, int]:
    """Run gdb in its own session: a Ctrl-C that hits it during a call into the process would do harm."""
    environment = {name: value for name, value in os.environ.items() if name != "DEBUGINFOD_URLS"}
    environment.update(PYTHONIOENCODING="utf-8")
    try:
        process = subprocess.Popen(
            ["gdb", "-nx", "-batch", *arguments],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            start_new_session=True, env=environment, text=True, encoding="utf-8", errors="replace",
        )  # fmt: skip
    except FileNotFoundError:
        reason = f"{command.name} needs gdb, which is not on the path: install it (apt-get install gdb)"
        raise GdbheapError(reason) from None
    except OSError as error:
        raise GdbheapError(f"gdb cannot be started: {error.strerror}") from None
    output, errors = _wait(process)
    return output, errors, process.returncode


def _wait(process: subprocess.Popen[str]) -> tuple[str, str]:
    """Wait for gdb to the end; Ctrl-C counts only after it has let the process go."""
    interrupted = False
    while True:
        try:
            output, errors = process.communicate()
            break
        except KeyboardInterrupt:
            if not interrupted:
                print("gdbheap: waiting until gdb has let the process go", file=sys.stderr)
            interrupted = True
    if interrupted:
        raise KeyboardInterrupt
    return output, errors


def _document(output: str) -> dict[str, Any] | None:
    """The line that is the JSON document; gdb's own lines stand around it."""
    for line in output.splitlines():
        if line.startswith('{"command"'):
            content = json.loads(line)
            return content if isinstance(content, dict) else None
    return None


def _last_line(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return one_line(lines[-1]) if lines else ""
