"""Real programs, alone and under ``gdbheap trace``: the same result, no crash.

``.venv/bin/python tests/traced.py`` prints the table of docs/calls.md; tests/test_traced_programs.py tries the quick
ones. A program is a command with its result: its exit status, its output, and its files. Values that differ from run to
run by themselves (times, process ids) are left out.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from support.ports import free_port

HERE = Path(__file__).resolve().parent
GDBHEAP = Path(sys.executable).with_name("gdbheap")
PATIENCE = 1200.0
PYTHON_TESTS = "test_json test_re test_thread test_threading test_subprocess test_fork1 test_gc"
# It lists the open descriptors, and finds the recorder's.
LEFT_OUT = "test_pass_fds_redirected"
VERSIONS = ("3.13", "3.12", "3.11", "3.10", "3.9", "3.8")
# Its reply to each request is known: no worker may mix up two.
APPLICATION = """
import hashlib, json, zlib
def app(environ, start):
    path = environ["PATH_INFO"]
    rows = [{"path": path, "row": number, "sum": hashlib.sha256(f"{path} {number}".encode()).hexdigest()}
            for number in range(len(path) % 40)]
    body = zlib.compress(json.dumps(rows).encode())
    start("200 OK", [("Content-Length", str(len(body)))])
    return [body]
"""


@dataclass(frozen=True)
class Outcome:
    """The result of a program: ``result`` must be the same each time, and is printed for the first; ``seconds`` it
    took."""

    result: str
    seconds: float
    said: str = ""


Run = Callable[[list[str], Path], Outcome]


def outcome(words: list[str], folder: Path, **options: object) -> Outcome:
    """Return a command's status and a checksum of its output. Its standard error is shown to the reader of
    the table.
    """
    began = time.monotonic()
    done = subprocess.run(words, cwd=folder, capture_output=True, timeout=PATIENCE, **options)  # type: ignore[call-overload]
    result = f"{done.returncode} {hashlib.sha256(done.stdout).hexdigest()}"
    return Outcome(result, time.monotonic() - began, done.stderr.decode(errors="replace")[-500:])


def git(commits: int, seed: int) -> Run:
    """Return git clone of a repository over pipes, so that both sides pack: the same commit, and no errors by fsck."""

    def run(before: list[str], folder: Path) -> Outcome:
        source, clone = folder / "source", folder / "clone"
        if not source.exists():
            _make_repository(source, commits, random.Random(seed))
        shutil.rmtree(clone, ignore_errors=True)
        words = ["git", "-c", "pack.threads=2", "clone", "-q", "--no-local", str(source), str(clone)]
        found = outcome([*before, *words], folder)
        told = [
            subprocess.run(["git", "-C", str(clone), *rest], capture_output=True, text=True)
            for rest in (["rev-parse", "HEAD"], ["fsck", "--full"], ["ls-files", "-s"])
        ]
        rest = " ".join(f"{one.returncode} {hashlib.sha256(one.stdout.encode()).hexdigest()}" for one in told)
        return Outcome(f"{found.result} {rest}", found.seconds, found.said)

    return run


def _make_repository(path: Path, commits: int, rng: random.Random) -> None:
    path.mkdir(0o700)
    identity = ["-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "init.defaultBranch=main"]
    subprocess.run(["git", *identity, "init", "-q", str(path)], check=True)
    words = [f"{rng.getrandbits(60):x}" for _ in range(500)]
    for number in range(commits):
        for _ in range(8):
            file = path / f"{rng.randrange(60)}.txt"
            file.write_text("\n".join(rng.choices(words, k=rng.randrange(400))))
        subprocess.run(["git", "-C", str(path), "add", "-A"], check=True)
        dated = {"GIT_AUTHOR_DATE": f"{number + 10**9} +0000", "GIT_COMMITTER_DATE": f"{number + 10**9} +0000"}
        command = ["git", *identity, "-C", str(path), "commit", "-qm", str(number), "--allow-empty"]
        subprocess.run(command, check=True, env={**os.environ, **dated})


def sqlite(rows: int, seed: int) -> Run:
    """Return a script of tables, indexes, joins and deletions; its output is compared to the byte."""

    def run(before: list[str], folder: Path) -> Outcome:
        rng, script = random.Random(seed), folder / "script.sql"
        lines = ["create table t(a integer primary key, b text, c integer);", "create index i on t(b);", "begin;"]
        lines += [f"insert into t values({n}, '{rng.getrandbits(200):x}', {rng.randrange(500)});" for n in range(rows)]
        lines += [
            "commit;",
            "select c, count(*), max(b) from t group by c order by c;",
            "delete from t where a % 3 = 0;",
            "update t set b = b || upper(b) where c < 100;",
            "select count(*) from t x join t y on x.c = y.c where x.a < 2000 and y.a < 2000;",
            "select substr(b, 1, 20), length(b) from t order by b desc limit 3000;",
        ]
        script.write_text("\n".join(lines))
        return outcome([*before, "sqlite3", ":memory:", f".read {script}"], folder)

    return run


def cpp(seed: int) -> Run:
    """Return threads that come and go, with every form of new and delete (tests/programs/threads.cc), and their sum."""

    def run(before: list[str], folder: Path) -> Outcome:
        program = folder / "threads"
        if not program.exists():
            source = str(HERE / "programs" / "threads.cc")
            command = ["g++", "-O1", "-std=c++17", "-pthread", source, "-o", str(program)]
            subprocess.run(command, check=True)
        return outcome([*before, str(program), str(seed)], folder)

    return run


def python_tests(executable: str, names: str) -> Run:
    """Return CPython's own tests: as many pass, and none fails."""

    def run(before: list[str], folder: Path) -> Outcome:
        words = [*before, executable, "-m", "test", "--tempdir", str(folder), "-i", LEFT_OUT, *names.split()]
        began = time.monotonic()
        done = subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=PATIENCE)
        counts = [
            line for line in done.stdout.splitlines() if re.match(r"All \d+|Total test|\d+ tests? failed|Result", line)
        ]
        counts += [line for line in done.stdout.splitlines() if line.startswith(("    test_",))]
        failed = [line for line in done.stdout.splitlines() if line.startswith(("FAIL:", "ERROR:"))]
        said = "\n".join([*failed, done.stdout[-300:]]) if done.returncode else done.stderr[-300:]
        return Outcome(f"{done.returncode} {' '.join(counts)}", time.monotonic() - began, said)

    return run


def gunicorn(executable: str, workers: int, requests: int, seed: int) -> Run:
    """Return a server with several workers under load: each reply is right, and it ends by SIGTERM with status 0."""

    def run(before: list[str], folder: Path) -> Outcome:
        (folder / "application.py").write_text(APPLICATION)
        port = free_port()
        quick = ["--workers", str(workers), "--bind", f"127.0.0.1:{port}", "--max-requests", str(requests // 5)]
        words = [*before, executable, "-m", "gunicorn", *quick, "application:app"]
        began = time.monotonic()
        server = subprocess.Popen(words, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        pid_of_master = server.pid if not before else _first_child(server.pid)
        wrong = _load(port, requests, random.Random(seed))
        os.kill(pid_of_master, signal.SIGTERM)
        said, _ = server.communicate(timeout=PATIENCE)
        return Outcome(f"{server.returncode} {wrong} of {requests} wrong", time.monotonic() - began, said[-500:])

    return run


def _first_child(pid: int) -> int:
    """Return the command that gdbheap trace has started."""
    path, deadline = Path(f"/proc/{pid}/task/{pid}/children"), time.monotonic() + PATIENCE
    while not (found := path.read_text().split()) and time.monotonic() < deadline:
        time.sleep(0.02)
    return int(found[0])


def _load(port: int, requests: int, rng: random.Random) -> int:
    """Return how many of the replies to four simultaneous clients were wrong."""
    paths, wrong, guard = (
        [f"/{rng.getrandbits(8 * rng.randrange(1, 30)):x}" for _ in range(requests)],
        [0],
        threading.Lock(),
    )
    _wait_for(port)

    def client(own: list[str]) -> None:
        for path in own:
            is_wrong = True
            for _ in range(3):
                # A worker that has had its share of requests may close a connection that it has not accepted.
                try:
                    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=60) as answer:
                        is_wrong = answer.read() != _expected(path)
                    break
                except OSError:
                    continue
            with guard:
                wrong[0] += is_wrong

    clients = [threading.Thread(target=client, args=(paths[number::4],)) for number in range(4)]
    for one in clients:
        one.start()
    for one in clients:
        one.join()
    return wrong[0]


def _wait_for(port: int) -> None:
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=60).read()
            return
        except OSError:
            time.sleep(0.05)


def _expected(path: str) -> bytes:
    found: dict[str, Callable[[dict[str, str], Callable[..., object]], list[bytes]]] = {}
    exec(APPLICATION, found)
    return found["app"]({"PATH_INFO": path}, lambda *_: None)[0]


@dataclass(frozen=True)
class Compared:
    """A program's row: whether both runs had the same result, and what was recorded."""

    same: bool
    alone: Outcome
    traced: Outcome
    calls: int
    of_python: int
    processes: int
    lost: int


def compare(run: Run, folder: Path, *options: str) -> Compared:
    """Run the program alone, then under ``gdbheap trace``, in its own folder."""
    folder.mkdir(0o700)
    alone, log = run([], folder), folder / "calls.log"
    traced = run([str(GDBHEAP), "trace", "-o", str(log), *options, "--"], folder)
    # Only the sentence of the command is read here: the log is asked again.
    found = re.search(r"([\d,]+) calls? of ([\d,]+) process", traced.said)
    python = re.search(r"([\d,]+) calls? of Python", traced.said)
    lost = re.search(r"([\d,]+) more could not", traced.said)
    numbers = [int(match[1].replace(",", "")) if match else 0 for match in (found, python, lost)]
    processes = int(found[2].replace(",", "")) if found else 0
    is_same = alone.result == traced.result and alone.result.startswith("0 ")
    return Compared(is_same, alone, traced, numbers[0], numbers[1], processes, numbers[2])


def with_tests() -> str | None:
    """Return the newest CPython below ~/.pyenv that has its own tests."""
    for version in VERSIONS:
        for found in sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python{version}")):
            if (found.parent.parent / "lib" / f"python{version}" / "test" / "test_json").is_dir():
                return str(found)
    return None


def _with_gunicorn(folder: Path) -> str:
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    subprocess.run([str(folder / "bin" / "pip"), "install", "-q", "gunicorn"], check=True)
    return str(folder / "bin" / "python")


def main() -> int:
    """Print the table; return 1 if a result differs."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 30))
    parser.add_argument("--only", default="", help="programs whose name has this in it")
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    differs = False
    with tempfile.TemporaryDirectory(prefix="gdbheap-traced-") as place:
        folder = Path(place)
        programs: dict[str, tuple[Callable[[], Run], tuple[str, ...]]] = {
            "git clone, 300 commits": (lambda: git(300, options.seed), ()),
            "sqlite3, 100,000 rows": (lambda: sqlite(100_000, options.seed), ()),
            "C++, 320 threads, 8 at a time": (lambda: cpp(options.seed), ()),
            "gunicorn, 3 workers, 6,000 requests": (
                lambda: gunicorn(_with_gunicorn(folder / "venv"), 3, 6000, options.seed),
                (),
            ),
        }
        if (python := with_tests()) is not None:
            name = f"CPython {Path(python).name.removeprefix('python')}, {len(PYTHON_TESTS.split())} of its test suites"
            programs[name] = (lambda: python_tests(python, PYTHON_TESTS), ())
            programs[f"{name}, --pymalloc"] = (lambda: python_tests(python, PYTHON_TESTS), ("--pymalloc",))
        print(
            "| program | calls | calls of Python's allocator | processes | calls lost | result "
            "| seconds alone | seconds traced |"
        )
        print("| --- | --- | --- | --- | --- | --- | --- | --- |")
        for number, (name, (make, words)) in enumerate(programs.items()):
            if options.only not in name:
                continue
            found = compare(make(), folder / str(number), *words)
            differs |= not found.same
            cells = [name, f"{found.calls:,}", f"{found.of_python:,}", f"{found.processes:,}", f"{found.lost:,}"]
            cells += [
                "the same" if found.same else "differs",
                f"{found.alone.seconds:.1f}",
                f"{found.traced.seconds:.1f}",
            ]
            print(f"| {' | '.join(cells)} |", flush=True)
            if not found.same:
                print(json.dumps([vars(found.alone), vars(found.traced)], indent=1))
    return int(differs)


if __name__ == "__main__":
    sys.exit(main())
