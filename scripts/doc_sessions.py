"""The sessions shown in README.md and docs/: run them, and with --write put their real output into the pages.

A session is a block that starts with ```console; its lines that begin with "$ " are commands, and what follows each is
its output. They are about programs in examples/ that are started here, and whose process ids the pages show as others:
bloated.py as 1234, or what the page says in lines such as

    <!-- service 1234: previews.py --load=5000 -->

An address in a command is one that an earlier command of the same page said; the one that stands in the same place of
its real output is taken. A block that starts with ```diff, after a line such as

    <!-- diff: previews.py previews_fixed.py -->

is what differs between two of the examples, without the text at their top. Run it with the Python that gdbheap is
installed in; PAGE is one of the pages, all if there is none.
"""

from __future__ import annotations

import difflib
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
EXAMPLES = ROOT / "examples"
DEFAULT = "bloated.py"
SHOWN_PID = "1234"
# What says on which machine an answer was given.
SHOWN = {
    r'"host": "[^"]*"': '"host": "server"',
    r'"boot_id": "[^"]*"': '"boot_id": "0f8d2c9e-5a41-4c1b-9d3e-7b6a5f4e3d2c"',
    r'"start_time": [0-9]+': '"start_time": 864213',
    # Some runs of an example have it.
    r"; the block after the largest hole is held by [^\n]*\.(?=\n)": ".",
    r"(?m)^Container /.*\n((\d|Tasks|Its|It |The ).*\n)?\n": "",
}
SERVICE = re.compile(r"^<!-- service (\d+): (.+) -->$", re.MULTILINE)
DIFFERENCE = re.compile(r"(^<!-- diff: (\S+) (\S+) -->\n+```diff\n)(?:.*?)^```$", re.MULTILINE | re.DOTALL)
ADDRESS = re.compile(r"\b0x[0-9a-f]+\b")
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


def sessions() -> list[tuple[Path, int, Step]]:
    """Return (page, place in it, step) for every step of every page."""
    found = []
    for page in pages():
        blocks = BLOCK.findall(page.read_text(encoding="utf-8"))
        found += [(page, place, step) for place, step in enumerate(step for block in blocks for step in steps(block))]
    return found


@contextmanager
def example(*arguments: str, python: str = sys.executable) -> Iterator[int]:
    """Run a program of examples/ for the length of the block; yield its process id once it is ready."""
    command = [python, str(EXAMPLES / arguments[0]), "--seconds=600", *arguments[1:]]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        if not any(line == "ready\n" for line in process.stdout):
            raise RuntimeError(f"{arguments[0]} ended before it was ready")
        yield process.pid
    finally:
        process.kill()
        process.wait()


def run(command: str, pids: dict[str, int], home: str) -> Done:
    """Run one command of a page in a shell, about the processes `pids`, with `home` as the home folder."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {**os.environ, "HOME": home, "PATH": path, "LC_ALL": "C.UTF-8", "COLUMNS": "100"}
    environment.pop("XDG_CONFIG_HOME", None)
    for shown_pid, pid in pids.items():
        command = re.sub(rf"\b{shown_pid}\b", str(pid), command)
    done = subprocess.run(
        command, shell=True, cwd=home, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True
    )
    return Done(done.returncode, done.stdout, done.stderr)


def shown(command: str, done: Done, pids: dict[str, int], home: str) -> str:
    """Return the output as a page shows it: without gdb's own chatter, with the pages' process ids and home folder, and
    without what it says of the container that it happened to run in."""
    lines = done.output.splitlines()
    if command.startswith("gdb "):
        start = next((place for place, line in enumerate(lines) if not CHATTER.match(line)), 0)
        lines = [line for line in lines[start:] if not line.startswith("[Inferior ")]
    text = "\n".join(line.rstrip() for line in lines).strip("\n")
    text = text.replace(str(Path(sys.executable).parent.parent), "/opt/gdbheap").replace(home, "~")
    for own, shown in SHOWN.items():
        text = re.sub(own, shown, text)
    for shown_pid, pid in pids.items():
        text = re.sub(rf"\b{pid}\b", shown_pid, text)
    return text + "\n" if text else ""


class Services:
    """The programs that the pages are about: each is started when it is first needed, and runs until the end."""

    def __init__(self) -> None:
        self._running = ExitStack()
        self._pids: dict[str, int] = {}

    def __enter__(self) -> Services:
        return self

    def __exit__(self, *_why: object) -> None:
        self._running.close()

    def of(self, text: str) -> dict[str, int]:
        """Return the process ids of a page's programs, by those that the page shows."""
        wanted = dict(SERVICE.findall(text)) or {SHOWN_PID: DEFAULT}
        return {shown_pid: self._pid(command) for shown_pid, command in wanted.items()}

    def _pid(self, command: str) -> int:
        if command not in self._pids:
            self._pids[command] = self._running.enter_context(example(*command.split()))
        return self._pids[command]


class Page:
    """A page and what its commands really say, each run once, in their order."""

    def __init__(self, path: Path, services: Services, home: str) -> None:
        self.text = path.read_text(encoding="utf-8")
        self.steps = [step for block in BLOCK.findall(self.text) for step in steps(block)]
        self._services, self._home = services, home
        self._done: list[tuple[str, Done, str]] = []

    def done(self, place: int) -> tuple[str, Done, str]:
        """Return the command that was run at this place of the page, what came of it, and that as the page shows it."""
        while len(self._done) <= place:
            command = self._command(len(self._done))
            pids = self._services.of(self.text)
            done = run(command, pids, self._home)
            self._done.append((command, done, shown(command, done, pids, self._home)))
        return self._done[place]

    def _command(self, place: int) -> str:
        """Return the command with the present addresses. Raises ValueError for one that the page did not say before."""
        said = [(step.output, real) for step, (_, _, real) in zip(self.steps[:place], self._done)]

        def renewed(found: re.Match[str]) -> str:
            for output, real in said:
                before = ADDRESS.findall(output)
                if found[0] in before:
                    return str(ADDRESS.findall(real)[before.index(found[0])])
            raise ValueError(f"no command said {found[0]} before: {self.steps[place].command}")

        return ADDRESS.sub(renewed, self.steps[place].command)


def differences(before: str, after: str) -> str:
    """Return what differs between two examples, with a line around it, and without the text at their top."""
    old, new = ((EXAMPLES / name).read_text(encoding="utf-8").partition("import ")[2] for name in (before, after))
    lines = list(difflib.unified_diff(old.splitlines(), new.splitlines(), n=1, lineterm=""))[3:]
    return "\n".join("…" if line.startswith("@@") else line.rstrip() for line in lines) + "\n"


def rewrite(path: Path, services: Services, home: str) -> None:
    """Put the real output into every session of a page, and the real differences. Raises when a command fails."""
    page = Page(path, services, home)
    places = iter(range(len(page.steps)))

    def renew(found: re.Match[str]) -> str:
        parts = []
        for _ in steps(found[1]):
            command, done, real = page.done(next(places))
            if done.status:
                raise RuntimeError(f"{path.name}: {command} ended with {done.status}: {done.errors}")
            parts.append(f"$ {command}\n{real}")
        return "```console\n" + "".join(parts) + "```"

    text = BLOCK.sub(renew, page.text)
    text = DIFFERENCE.sub(lambda found: f"{found[1]}{differences(found[2], found[3])}```", text)
    path.write_text(text, encoding="utf-8")


def main() -> None:
    """Run every session; with --write, put the output into the pages."""
    write = sys.argv[1:2] == ["--write"]
    wanted = [Path(name).resolve() for name in sys.argv[1 + write :]]
    if not set(wanted) <= set(pages()):
        raise SystemExit("usage: doc_sessions.py [--write] [PAGE…]")
    with Services() as services, tempfile.TemporaryDirectory() as home:
        for path in wanted or pages():
            if write:
                rewrite(path, services, home)
                continue
            page = Page(path, services, home)
            for place in range(len(page.steps)):
                command, _, real = page.done(place)
                print(f"$ {command}\n{real}", end="")


if __name__ == "__main__":
    main()
