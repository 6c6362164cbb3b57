"""The sessions shown in README.md and docs/: run them, and with --write put their real output into the pages.

A session is a block that starts with ```console; its lines that begin with "$ " are commands, and what follows each is
its output. They are about examples/bloated.py, started here, whose process id the pages show as 1234. Run it with the
Python that gdbheap is installed in.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
EXAMPLE = ROOT / "examples" / "bloated.py"
SHOWN_PID = "1234"
# What says on which machine an answer was given.
SHOWN = {
    r'"host": "[^"]*"': '"host": "server"',
    r'"boot_id": "[^"]*"': '"boot_id": "0f8d2c9e-5a41-4c1b-9d3e-7b6a5f4e3d2c"',
    r'"start_time": [0-9]+': '"start_time": 864213',
}
BLOCK = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
# What gdb says before any command: where the process is, its threads, and its files' symbols.
CHATTER = re.compile(r"^(\[|Using host|0x[0-9a-f]+ in |warning: |\d+\t|Download failed|__|  )")


@dataclass(frozen=True)
class Step:
    """One command of a session and the output that the page shows for it."""

    command: str
    output: str


@dataclass(frozen=True)
class Done:
    """What came of a command: its exit status, standard output, standard error."""

    status: int
    output: str
    errors: str


def pages() -> list[Path]:
    """Return the pages that may show sessions."""
    return [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


def steps(block: str) -> Iterator[Step]:
    """Yield the steps of the inside of a block."""
    for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
        command, _, output = part.partition("\n")
        yield Step(command, output)


def sessions() -> list[tuple[str, Step]]:
    """Return (page, step) for every step of every page."""
    blocks = [(page.name, block) for page in pages() for block in BLOCK.findall(page.read_text(encoding="utf-8"))]
    return [(name, step) for name, block in blocks for step in steps(block)]


@contextmanager
def example(python: str = sys.executable, *arguments: str) -> Iterator[int]:
    """Run examples/bloated.py for the length of the block; yield its process id once it is ready."""
    command = [python, str(EXAMPLE), "--seconds=600", *arguments]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        if not any(line == "ready\n" for line in process.stdout):
            raise RuntimeError(f"{EXAMPLE.name} ended before it was ready")
        yield process.pid
    finally:
        process.kill()
        process.wait()


def run(command: str, pid: int, home: str) -> Done:
    """Run one command of a page in a shell, about `pid`, with `home` as the home folder."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {**os.environ, "HOME": home, "PATH": path, "LC_ALL": "C.UTF-8", "COLUMNS": "100"}
    environment.pop("XDG_CONFIG_HOME", None)
    line = re.sub(rf"\b{SHOWN_PID}\b", str(pid), command)
    done = subprocess.run(
        line, shell=True, cwd=home, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True
    )
    return Done(done.returncode, done.stdout, done.stderr)


def shown(command: str, done: Done, pid: int, home: str) -> str:
    """Return the output as a page shows it: without gdb's own chatter, with the pages' process id and home folder."""
    lines = done.output.splitlines()
    if command.startswith("gdb "):
        start = next((place for place, line in enumerate(lines) if not CHATTER.match(line)), 0)
        lines = [line for line in lines[start:] if not line.startswith("[Inferior ")]
    text = "\n".join(line.rstrip() for line in lines).strip("\n")
    text = text.replace(str(Path(sys.executable).parent.parent), "/opt/gdbheap").replace(home, "~")
    for own, shown in SHOWN.items():
        text = re.sub(own, shown, text)
    return re.sub(rf"\b{pid}\b", SHOWN_PID, text) + "\n" if text else ""


def rewrite(page: Path, pid: int, home: str) -> None:
    """Put the real output into every session of a page. Raises when a command fails."""

    def renew(found: re.Match[str]) -> str:
        parts = []
        for step in steps(found[1]):
            done = run(step.command, pid, home)
            if done.status:
                raise RuntimeError(f"{page.name}: {step.command} ended with {done.status}: {done.errors}")
            parts.append(f"$ {step.command}\n{shown(step.command, done, pid, home)}")
        return "```console\n" + "".join(parts) + "```"

    page.write_text(BLOCK.sub(renew, page.read_text(encoding="utf-8")), encoding="utf-8")


def main() -> None:
    """Run every session; with --write, put the output into the pages."""
    if sys.argv[1:] not in ([], ["--write"]):
        raise SystemExit("usage: doc_sessions.py [--write]")
    with example() as pid, tempfile.TemporaryDirectory() as home:
        if sys.argv[1:]:
            for page in pages():
                rewrite(page, pid, home)
            return
        for _, step in sessions():
            done = run(step.command, pid, home)
            print(f"$ {step.command}\n{shown(step.command, done, pid, home)}", end="")


if __name__ == "__main__":
    main()
