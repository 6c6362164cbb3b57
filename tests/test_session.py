"""``gdbheap shell``: one reading for many commands, from a pipe and on a terminal, while the process runs on.

It is checked against the answers of single commands, and against the kernel's count of the bytes that the session has
read.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pty
import random
import resource
import select
import signal
import stat
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support import busy
from support.gdb_side import runs
from support.nouns import ADDRESSED, FOLLOWING, GRAPHS, LIVE_ONLY, PLAIN, SHELL_ONLY
from support.programs import GDBHEAP, PATIENCE, Running, ask, c_program, gdbheap, python_program, running
from support.sessions import Session, session
from support.users import NOBODY

from gdbheap.commands.shell import line_words
from gdbheap.commands.surface.registry import COMMANDS

MIB = 1 << 20
NOUNS = (*PLAIN, *GRAPHS)
PROMPT = "gdbheap> "


def piped(target: object, text: str, *options: str) -> subprocess.CompletedProcess[str]:
    """Return the result of these lines, typed through a pipe."""
    return gdbheap("shell", str(target), *options, input=text)


@pytest.fixture(scope="module")
def core(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the core of a Python process with holes."""
    seed = random.randrange(1 << 30)
    print(f"seed of the fragmented process: {seed}")
    with running(python_program("stripped", "fragmented", seed, 60), tmp_path_factory.mktemp("core")) as started:
        return started.kernel_core()


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Yield a C process that allocates on request."""
    with running(c_program("steps", 7, 0), tmp_path_factory.mktemp("small")) as started:
        yield started


def test_answers_are_those_of_single_commands(core: Path, rng: random.Random) -> None:
    """Check that each answer, also the second one, equals that of a single command, whatever was asked before."""
    whole = ask("chunks", str(core), "--state=used", "--top=5")
    address = str(whole["rows"][0]["address"])
    lines = [*NOUNS, *(f"{noun} {address}" for noun in ADDRESSED if noun == "at")]
    alone = {line: ask(line.split()[0] if line else "", str(core), *line.split()[1:]) for line in lines}
    order = [*rng.sample(lines, len(lines)), *rng.sample(lines, len(lines))]
    with session(core) as opened:
        for line in order:
            assert opened.ask(f"{rng.choice(('heap ', 'gdbheap ', '')) if line else 'heap'} {line}") == alone[line], (
                order
            )
        output, errors, status = opened.end()
    assert (output, errors, status) == ("", "", 0)


def test_second_command_reads_nothing(core: Path) -> None:
    """Check by the kernel's count that the first answer reads the heap, and the second one nothing."""

    def read() -> int:
        text = Path(f"/proc/{opened.process.pid}/io").read_text()
        return int(text.split("rchar: ")[1].split()[0])

    with session(core) as opened:
        opened.ask("info")
        before = read()
        first = opened.ask("pyobjects")
        between = read()
        assert opened.ask("pyobjects") == first
        assert between - before > MIB and read() - between < 64 << 10


@pytest.mark.parametrize("options", [(), ("--clone",)], ids=["copied", "clone"])
def test_process_runs_on(options: tuple[str, ...], small: Running, rng: random.Random) -> None:
    """Check that the process is not stopped for the session, and that answers are about one moment until refresh."""
    size = rng.randrange(5, 40) * MIB
    with session(small.pid, *options) as opened:
        first = opened.ask("arenas")
        assert runs(small.pid)
        small.go_on(f"big {size}")
        try:
            assert [opened.ask(line)["rows"] for line in ("arenas", "heap arenas")] == [first["rows"]] * 2
            opened.type("refresh")
            later = opened.ask("arenas")
            assert later["total"]["in_use"] >= first["total"]["in_use"] + size and runs(small.pid)
            assert later["rows"] == ask("arenas", str(small.pid))["rows"]
        finally:
            small.go_on("drop")
        assert opened.end() == ("", "", 0)
    busy.wait_for(lambda: busy.children_of(small.pid) == [], "a copy is left")


def test_process_that_ends(tmp_path: Path) -> None:
    """Check that copied memory stays, that each question that needs the process is refused in a line, and that the
    session continues."""
    with running(c_program("steps", 8, 0), tmp_path) as target, session(target.pid) as opened:
        first = opened.ask("sizes")
        target.close()
        for line in ("refresh", "growth --duration=1s", "stats", "catch malloc"):
            opened.type(line)
        assert opened.ask("sizes") == first and opened.ask("check")["ok"]
        _, errors, status = opened.end()
    assert status == 4 and errors.count(f"process {target.pid} has ended") == 4 == len(errors.splitlines()), errors


def test_clone_ends_with_its_process(tmp_path: Path) -> None:
    """Check that each command then says that the target is gone."""
    with running(c_program("steps", 9, 0), tmp_path) as target, session(target.pid, "--clone") as opened:
        opened.ask("sizes")
        target.close()
        opened.type("sizes")
        _, errors, status = opened.end()
    assert status == 4 and "has ended" in errors and len(errors.splitlines()) == 1, errors


def test_calls_are_made_in_the_process(small: Running) -> None:
    """Check that heap stats calls the process itself, even if a copy answers the rest, and that the cache is then
    read anew."""
    for options in ((), ("--clone",)):
        with session(small.pid, *options) as opened:
            before = opened.ask("arenas")
            small.go_on(f"big {MIB}")
            assert opened.ask("stats")["agrees"]
            assert opened.ask("arenas")["total"]["in_use"] > before["total"]["in_use"]
            small.go_on("drop")
            assert opened.end() == ("", "", 0)


def test_where_a_process_cannot_be_kept(tmp_path: Path) -> None:
    """Check that without room for a copy each command stops the process anew, and that one line explains this."""

    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (700 * MIB, 700 * MIB))

    with running(c_program("steps", 10, 0), tmp_path) as target:
        target.go_on(f"big {600 * MIB}")
        with session(target.pid, preexec_fn=limited) as opened:
            first = opened.ask("arenas")
            target.go_on(f"big {MIB}")
            assert opened.ask("arenas")["total"]["in_use"] > first["total"]["in_use"] and runs(target.pid)
            _, errors, status = opened.end()
    assert status == 0 and len(errors.splitlines()) == 1 and "reads it anew" in errors, errors


def test_diff_with_the_target(core: Path, tmp_path: Path) -> None:
    """Check that a single snapshot is compared with the target, as in gdb, and that a session's commands can read
    and write files."""
    look = tmp_path / "a look.heap"
    with session(core) as opened:
        opened.ask(f"snapshot '{look}'")
        found = opened.ask(f"diff '{look}'")
        assert all(line["resident"] == line["virtual"] == 0 for line in found["ledger"]) and found["ledger"]
        assert opened.end() == ("", "", 0)


@pytest.mark.parametrize(
    ("text", "lines", "errors", "status"),
    [
        ("", 0, 0, 0),
        ("\n\n# nothing\n   \n", 0, 0, 0),
        ("arenas --json", 1, 0, 0),
        ("nonsense\narenas --json\n", 1, 1, 2),
        ("plot x\narenas --json\n", 1, 1, 2),
        ("arenas --bogus\nholes --min=lots\nat\nat here\nsizes --json\n", 1, 4, 2),
        ("arenas more\nrefresh now\nhelp nonsense\nsizes --json\n", 1, 3, 2),
        ("at 'open\nsizes --json\n", 1, 1, 2),
        ("stats\ngrowth\ncatch malloc\nsizes --json\n", 1, 3, 2),
        ("at 0x10\nsizes --json", 1, 1, 2),
        ("quit\nnonsense\n", 0, 0, 0),
        ("diff\nsnapshot\ndiff /nowhere/a.heap\nsizes --json\n", 1, 3, 4),
        ("x" * (1 << 20) + "\nsizes --json\n", 1, 1, 2),
        ("\0\nsizes --json\n", 1, 1, 2),
    ],
)
def test_lines_from_a_pipe(text: str, lines: int, errors: int, status: int, core: Path) -> None:
    """Check each answer in order and nothing else; each error is a line, the next line is read, and the highest
    status counts."""
    done = piped(core, text)
    assert (len(done.stdout.splitlines()), len(done.stderr.splitlines())) == (lines, errors), done
    assert done.returncode == status and PROMPT not in done.stdout, done
    assert all(json.loads(line)["command"] for line in done.stdout.splitlines())


def test_options_of_the_session(core: Path) -> None:
    """Check that a session's options apply to each command, and that an option of the command itself overrides them."""
    done = piped(core, "heap\nsizes\n", "--json", "--no-text")
    assert [json.loads(line)["answer"]["command"] for line in done.stdout.splitlines()] == ["heap", "heap sizes"]
    exact = piped(core, "arenas\n", "--bytes").stdout.replace("'heap", "'gdbheap")
    assert exact == gdbheap("arenas", str(core), "--bytes").stdout and "MiB" not in exact.splitlines()[2]


def test_help_is_the_declarations(core: Path) -> None:
    """Check that every command of gdb has help here, and no other."""
    text = piped(core, "help\n").stdout
    assert all(f"\n  heap {noun} " in text for noun in line_words.OFFERED if noun)
    assert set(line_words.OFFERED) == set(COMMANDS) - set(SHELL_ONLY)
    typed = "".join(f"help {noun}\nhelp heap {noun}\nheap {noun} --help\n" for noun in line_words.OFFERED if noun)
    pages = piped(core, typed).stdout.split("\nExample: ")[:-1]
    nouns = [noun for noun in line_words.OFFERED if noun for _ in range(3)]
    assert len(pages) == len(nouns)
    assert all(f"Usage: {COMMANDS[noun].name}" in page for noun, page in zip(nouns, pages))
    whole = piped(core, "help heap\n").stdout
    assert "Usage: heap [NOUN] [options]" in whole and "\n  --detail  " in whole


def test_bad_target(tmp_path: Path) -> None:
    """Check that a session without a target does not begin: one line, and the status of the fault."""
    text = tmp_path / "text"
    text.write_text("no core")
    for target, status in ((str(text), 4), ("/nowhere/core", 4), ("4194305", 4), ("nonsense", 2)):
        done = piped(target, "heap\n")
        assert (done.stdout, len(done.stderr.splitlines()), done.returncode) == ("", 1, status), done
    assert gdbheap("shell").returncode == 2


def test_any_bytes(core: Path, tmp_path: Path, rng: random.Random) -> None:
    """Check lines of random bytes and words: each is answered or refused in a line, and none ends the session."""
    vocabulary = [
        *line_words.OFFERED,
        *line_words.OWN,
        "--",
        "-",
        "--top=1",
        "--json",
        "0x1000",
        "'",
        '"',
        "\\",
        "é",
        "heap",
        "--sort",
    ]
    typed = [b" ".join(rng.choice(vocabulary).encode() for _ in range(rng.randrange(5))) for _ in range(60)]
    typed += [bytes(rng.choices(range(1, 256), k=rng.randrange(50))) for _ in range(60)]
    kept = [line for line in typed if not line.strip().startswith((b"quit", b"exit"))]
    command = [str(GDBHEAP), "shell", str(core)]
    environment = {**os.environ, "GDBHEAP_DEBUG": "1"}
    lines = b"\n".join(kept) + b"\nsizes --json\n"
    # "snapshot stats" writes a file of that name.
    ends = {"cwd": tmp_path, "env": environment, "timeout": PATIENCE}
    done = subprocess.run(command, input=lines, capture_output=True, **ends)
    assert b"Traceback" not in done.stderr, done.stderr[-2000:]
    assert json.loads(done.stdout.splitlines()[-1])["command"] == "heap sizes"


def test_closed_pipe(core: Path) -> None:
    """Check that the session ends quietly without a reader."""
    line = f"printf 'sizes\\n%.0s' 1 2 3 4 5 6 | {GDBHEAP} shell {core} | head -1"
    done = subprocess.run(line, shell=True, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0 and len(done.stdout.splitlines()) == 1 and done.stderr == ""


def test_full_disk(core: Path) -> None:
    """Check that an answer that cannot be written is reported and ends the session."""
    with open("/dev/full", "wb") as full:
        command = [str(GDBHEAP), "shell", str(core)]
        done = subprocess.run(command, input=b"sizes\nsizes\n", stdout=full, stderr=subprocess.PIPE, timeout=PATIENCE)
    assert done.returncode == 1 and len(done.stderr.splitlines()) == 1


def test_interrupt_ends_the_command(core: Path, rng: random.Random) -> None:
    """Check Ctrl-C at any moment of a command: one line, and the next answers are those of an undisturbed session."""
    with session(core) as opened:
        opened.ask("info")
        start = time.monotonic()
        truth = opened.ask("retained --top=all")
        longest = 1.2 * (time.monotonic() - start)
    assert truth == ask("retained", str(core), "--top=all")
    interrupted = 0
    for _ in range(40):
        with session(core) as opened:
            opened.ask("info")
            opened.type("retained --json --top=all")
            time.sleep(rng.uniform(0, longest))
            opened.process.send_signal(signal.SIGINT)
            answer, error = _answer_or_error(opened)
            assert answer in (None, truth)
            if answer is None and "the session goes on" in error:
                assert opened.ask("retained --top=all") == truth
                _, errors, status = opened.end()
                assert (errors, status) == ("", 1)
                interrupted += 1
            elif answer is None:
                # The signal came while no command was running, which ends a session on pipes.
                assert "interrupted" in error and opened.process.wait(PATIENCE) == 1
        if interrupted == 3:
            return
    pytest.fail("no command was interrupted")


def test_interrupt_leaves_no_part_of_a_document(core: Path) -> None:
    """Check Ctrl-C while a document waits in a full pipe: it is written whole, and so is the next one."""
    with session(core) as opened:
        assert opened.process.stdout is not None
        size = fcntl.fcntl(opened.process.stdout, fcntl.F_SETPIPE_SZ, 4096)
        truth = opened.ask("retained --top=all")
        assert len(json.dumps(truth)) > 2 * size
        opened.type("retained --json --top=all")
        busy.wait_for_call(opened.process.pid, "write")
        opened.process.send_signal(signal.SIGINT)
        assert json.loads(opened.process.stdout.readline()) == truth
        assert opened.ask("info")["command"] == "heap info"


def _answer_or_error(opened: Session) -> tuple[dict[str, Any] | None, str]:
    """Return the answer to a command; if it was not answered, None and the line that says why."""
    assert opened.process.stdout is not None and opened.process.stderr is not None
    ready, _, _ = select.select([opened.process.stdout, opened.process.stderr], [], [], PATIENCE)
    if opened.process.stdout in ready:
        return json.loads(opened.process.stdout.readline()), ""
    return None, opened.process.stderr.readline()


@pytest.mark.parametrize("options", [(), ("--clone",)], ids=["copied", "clone"])
@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGTERM, signal.SIGHUP])
def test_killed_sessions_leave_nothing(
    options: tuple[str, ...], sent: signal.Signals, tmp_path: Path, rng: random.Random
) -> None:
    """Check that a session that ends at any moment leaves the process running, untraced, and no copy of it."""
    with busy.started("blocked", tmp_path, 16) as target:
        for _ in range(4):
            with session(target.pid, *options) as opened:
                for _ in range(3):
                    opened.type(rng.choice(("refresh", "arenas", "stats", "check", "refresh")))
                time.sleep(rng.uniform(0, 0.6))
                opened.process.send_signal(sent)
                opened.process.wait(PATIENCE)
            busy.wait_for(lambda: runs(target.pid), "it does not run")
            # The process that ends the copy outlives the session for a moment.
            busy.wait_for(lambda: busy.children_of(target.pid) == [], "a copy is left")
        target.unharmed(but=("EINTR",))


def _takes_terminal() -> None:
    """Make standard input the terminal of this session, from which Ctrl-C comes."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


class Terminal:
    """A person's session on its own terminal, with a home for its history."""

    def __init__(self, target: object, home: Path, *options: str) -> None:
        self.leader, follower = pty.openpty()
        environment = {**os.environ, "TERM": "xterm", "HOME": str(home), "NO_COLOR": "1"}
        environment.pop("XDG_STATE_HOME", None)
        ends = {"stdin": follower, "stdout": follower, "stderr": follower}
        command = [str(GDBHEAP), "shell", str(target), *options]
        self.process = subprocess.Popen(
            command, env=environment, cwd=home, start_new_session=True, preexec_fn=_takes_terminal, **ends
        )
        os.close(follower)
        self.seen, self.place = "", 0

    def until(self, what: str) -> str:
        """Return the output until the text appears, after the text that was last waited for."""
        deadline = time.monotonic() + PATIENCE
        while (end := self.seen.find(what, self.place)) < 0:
            assert time.monotonic() < deadline, self.seen
            self.look()
        begin, self.place = self.place, end + len(what)
        return self.seen[begin : self.place]

    def look(self) -> None:
        """Wait a moment for output."""
        if select.select([self.leader], [], [], 0.3)[0]:
            self.seen += os.read(self.leader, 1 << 16).decode(errors="replace")

    def interrupt(self) -> None:
        """Press Ctrl-C until there is a new prompt: Python's readline misses one just before it waits for a key.

        The first comes after a moment, since each discards the input that was not yet read.
        """
        deadline = time.monotonic() + PATIENCE
        while PROMPT not in self.seen[self.place :]:
            assert time.monotonic() < deadline, self.seen
            self.type("\x03")
            again = time.monotonic() + 5
            while PROMPT not in self.seen[self.place :] and time.monotonic() < again:
                self.look()
        self.place = len(self.seen)

    def type(self, keys: str) -> None:
        """Press keys."""
        os.write(self.leader, keys.encode())

    def end(self) -> int:
        """Press Ctrl-D, several times if needed; return the status."""
        deadline = time.monotonic() + PATIENCE
        while self.process.poll() is None:
            assert time.monotonic() < deadline, self.seen
            self.type("\x04")
            with contextlib.suppress(OSError):
                self.look()
        os.close(self.leader)
        return self.process.returncode


def needs_readline() -> None:
    """Skip if the Python that runs gdbheap has no readline."""
    pytest.importorskip("readline")


def test_a_terminal(core: Path, tmp_path: Path) -> None:
    """Check the prompt, Tab for nouns, options and files, Ctrl-C for an empty line, errors in a line, Ctrl-D, and
    status 0."""
    needs_readline()
    (tmp_path / "before.heap").touch()
    terminal = Terminal(core, tmp_path)
    terminal.until(PROMPT)
    terminal.type("aren\t--deta\t")
    terminal.until("arenas --detail ")
    terminal.type("\r")
    assert "in use" in terminal.until(PROMPT)
    terminal.type("pyobjects --sort=coun\t")
    terminal.until("--sort=count ")
    terminal.interrupt()
    terminal.type("diff bef\t")
    terminal.until("before.heap ")
    terminal.interrupt()
    terminal.type("nonsense\r")
    terminal.until("gdbheap: 'nonsense' is not a command here")
    terminal.until(PROMPT)
    assert terminal.end() == 0


def test_history(core: Path, tmp_path: Path) -> None:
    """Check that lines are kept for the next session, in a private file of limited size."""
    needs_readline()
    file = tmp_path / ".local" / "state" / "gdbheap" / "history"
    for typed in ("sizes --top=1\r", "\x1b[A\r"):
        terminal = Terminal(core, tmp_path)
        terminal.until(PROMPT)
        terminal.type(typed)
        assert "sizes --top=1" in terminal.until("chunk"), terminal.seen
        terminal.until(PROMPT)
        assert terminal.end() == 0
    # A line that is repeated at once is kept once.
    assert file.read_text() == "sizes --top=1\n"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600 and stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    file.write_text("".join(f"holes --top={number}\n" for number in range(5000)))
    terminal = Terminal(core, tmp_path)
    terminal.until(PROMPT)
    terminal.type("check\r")
    terminal.until(PROMPT)
    assert terminal.end() == 0
    kept = file.read_text().splitlines()
    assert len(kept) == 1000 and kept[-2:] == ["holes --top=4999", "check"]


# argv: a history. Reads it and appends a line to it, with little memory; prints how many lines were read.
REMEMBERED = """
import readline, resource, sys
from gdbheap.commands.shell import input_lines
resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
before = input_lines._remembered(readline, sys.argv[1])
readline.add_history("check")
input_lines._remember(readline, sys.argv[1], before)
print(before)
"""


@pytest.mark.parametrize("harm", [None, "sparse", "another's", "in another's folder"])
def test_histories_that_mean_harm(harm: str | None, tmp_path: Path) -> None:
    """Check that a history that is too large, or another user's, is neither read nor written to."""
    needs_readline()
    folder = tmp_path / "gdbheap"
    folder.mkdir()
    file = folder / "history"
    file.write_text("holes\n")
    if harm == "sparse":
        os.truncate(file, 8 << 30)
    elif harm is not None:
        if os.getuid() != 0:
            pytest.skip("needs root to act as another user")
        os.chown(file if harm == "another's" else folder, NOBODY, NOBODY)
    before = file.stat()
    command = [sys.executable, "-I", "-c", REMEMBERED, str(file)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    assert (done.stdout, done.stderr, done.returncode) == ("0\n" if harm else "1\n", "", 0)
    if harm is None:
        assert file.read_text() == "holes\ncheck\n"
    else:
        assert (file.stat().st_size, file.stat().st_mtime_ns) == (before.st_size, before.st_mtime_ns)


def test_no_history_without_contents(core: Path, tmp_path: Path) -> None:
    """Check that --no-text leaves no file, and that a home that cannot be written to is no error."""
    needs_readline()
    for options in (("--no-text",), ()):
        terminal = Terminal(core, tmp_path, *options)
        terminal.until(PROMPT)
        terminal.type("check\r")
        terminal.until(PROMPT)
        assert terminal.end() == 0
        assert not (tmp_path / ".local").is_dir()
        # A file in the folder's place: nothing can be written there.
        (tmp_path / ".local").touch()


@pytest.mark.parametrize(
    ("before", "last", "expected"),
    [
        ("", "hol", ["holes"]),
        ("", "q", ["quit"]),
        ("heap ", "hol", ["holes"]),
        ("heap ", "qui", []),
        ("help ", "hol", ["holes"]),
        ("help holes ", "--m", []),
        ("", "--det", ["--detail"]),
        ("holes ", "--mi", ["--min="]),
        ("heap holes --min=1M ", "--fi", ["--fit="]),
        ("pyobjects ", "--sort=buf", ["--sort=buffers"]),
        ("holes ", "here", []),
        ("plot ", "--", []),
        ("nonsense ", "--", []),
    ],
)
def test_completion(before: str, last: str, expected: list[str]) -> None:
    """Check nouns where a noun may stand, and otherwise the options of the command."""
    assert line_words.completions(before, last) == expected


def test_completion_of_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check the commands and options that take files; a folder may be continued."""
    (tmp_path / "looks").mkdir()
    (tmp_path / "looks" / "one.heap").touch()
    (tmp_path / "look.heap").touch()
    monkeypatch.chdir(tmp_path)
    assert line_words.completions("diff ", "loo") == ["look.heap", "looks/"]
    assert line_words.completions("snapshot ", "looks/") == ["looks/one.heap"]
    assert line_words.completions("map ", "--svg=looks/o") == ["--svg=looks/one.heap"]
    assert line_words.completions("diff ", "/nowhere/x") == []
    assert line_words.completions("at ", "loo") == []


@pytest.mark.parametrize("evil", ["\x1b]0;EVIL\x07", "\x9b31m", "\nquit", "\u202e", "\udc9b", "a b", "'"])
@pytest.mark.parametrize("start", ["~/", ""])
def test_completion_of_names_that_mean_harm(
    start: str, evil: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Check that no name controls the terminal or ends the line, in a home either."""
    for name in (f"look{evil}", "look.heap", "look~"):
        (tmp_path / name).touch()
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert line_words.completions("snapshot ", f"{start}loo") == [f"{start}look.heap"]
    assert line_words.completions("map ", f"--svg={start}loo") == [f"--svg={start}look.heap"]


def test_nouns_of_a_process_on_a_core(core: Path) -> None:
    """Check that a question for a live process is refused for a core, in the words of a session."""
    lines = [*LIVE_ONLY, *(f"{noun} malloc" if noun == "catch" else noun for noun in FOLLOWING)]
    done = piped(core, "\n".join(lines))
    assert len(done.stderr.splitlines()) == len(lines) and done.returncode == 2, done
    assert all(line.startswith(f"gdbheap {noun.split()[0]}:") for line, noun in zip(done.stderr.splitlines(), lines))
