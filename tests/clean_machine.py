"""Try a wheel or a .deb on a machine without a compiler: install it, use it, remove it. clean_machines.sh runs this
there.

It runs on the machine's own Python, 3.9 or later, and imports only the standard library. The last line that it prints
is a row of figures as JSON. The first failed check ends it, with status 1 and one line.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

PATIENCE = 300
# With musl's malloc, some commands are not supported. The row names those that are refused with status 5.
MUSL = bool(list(Path("/lib").glob("ld-musl-*")))
REFUSED = 5
NOT_SUPPORTED: list[str] = []
# No package may require these programs for its installation.
COMPILERS = ("cc", "gcc", "clang", "tcc", "cargo", "rustc", "zig", "make")
PLANTED = """
import sys, time
class Planted:
    def __init__(self):
        self.kept = bytes(1000)
kept = [Planted() for _ in range(int(sys.argv[1]))]
print("ready", flush=True)
time.sleep(1e6)
"""
# Folders with records about packages, and with files that any program leaves by running. Files in these do not count.
KEPT = (
    "/dev",
    "/proc",
    "/sys",
    "/srv",
    "/tmp",
    "/run",
    str(Path.home() / ".cache"),
    "/var/cache",
    "/var/log",
    "/var/lib/apt",
    "/var/lib/dpkg",
)


def run(*command: str, status: int = 0, **environment: str) -> str:
    """Run a command and return its output. End this script if the command ends with another status."""
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=PATIENCE, env={**os.environ, **environment}, check=False
    )
    if done.returncode != status:
        raise SystemExit(f"{' '.join(command)}: status {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def expect(holds: bool, text: str) -> None:
    """End this script with ``text`` unless ``holds`` is true."""
    if not holds:
        raise SystemExit(text)


@contextmanager
def planted(count: int) -> Iterator[str]:
    """Start a program with ``count`` objects of its own class. Yield its process id."""
    with subprocess.Popen([sys.executable, "-c", PLANTED, str(count)], stdout=subprocess.PIPE, text=True) as program:
        try:
            assert program.stdout is not None
            expect(program.stdout.readline() == "ready\n", "the program did not start")
            yield str(program.pid)
        finally:
            program.kill()


def counted(answer: dict[str, Any]) -> int:
    """Return how many of the planted objects are in an answer of ``heap pyobjects``."""
    rows = [row for row in answer["rows"] if row["type"].endswith("Planted")]
    return sum(int(row["count"]) for row in rows)


def resident(pid: str) -> int:
    """Return the resident bytes of a process by the kernel's count."""
    fields = Path(f"/proc/{pid}/status").read_text(encoding="ascii").split("VmRSS:")[1].split()
    return int(fields[0]) * 1024


def documents(text: str) -> list[dict[str, Any]]:
    """Return the lines that are JSON documents; gdb prints other lines between them."""
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]


def refused(*command: str) -> bool:
    """Return whether a command is refused on musl, and record that. On glibc no command is refused."""
    if not MUSL or subprocess.run(command, capture_output=True, timeout=PATIENCE).returncode != REFUSED:
        return False
    NOT_SUPPORTED.append(command[1])
    return True


def answers(gdbheap: str, pid: str, count: int) -> None:
    """Compare gdbheap's answers about the program with counts by the kernel and by the program itself."""
    ledger = json.loads(run(gdbheap, pid, "--json"))
    # The program rests; only the kernel may still change its pages.
    difference = abs(int(ledger["rss"]["bytes"]) - resident(pid))
    expect(difference <= resident(pid) // 100, f"RSS differs by {difference} bytes from /proc/{pid}/status")
    if not refused(gdbheap, "pyobjects", pid, "--type=*Planted"):
        found = counted(json.loads(run(gdbheap, "pyobjects", pid, "--type=*Planted", "--json")))
        expect(found == count, f"{found} of {count} objects were found")


def answers_in_gdb(pid: str, count: int) -> str:
    """Ask the same questions in gdb. Return gdb's release, or "" if there is no gdb."""
    if shutil.which("gdb") is None:
        return ""
    said = run("gdb", "-p", pid, "-batch", "-x", "gdbheap", "-ex", "heap pyobjects --type=*Planted --json")
    found = [counted(document) for document in documents(said)]
    expect(found == [count], f"in gdb {found} of {count} objects were found:\n{said}")
    return run("gdb", "--version").splitlines()[0].split()[-1]


def recorder_and_replayer(gdbheap: str) -> None:
    """Record the calls of a program and replay them, which runs two more of gdbheap's binaries."""
    with tempfile.TemporaryDirectory() as folder:
        log = os.path.join(folder, "log")
        run(gdbheap, "trace", "-o", log, "--", sys.executable, "-c", "kept = [bytes(9999) for _ in range(99)]")
        if not refused(gdbheap, "replay", log):
            run(gdbheap, "replay", log)


def pages(prefix: Path, zsh: str) -> None:
    """Check that the manual page and the completions are installed."""
    names = ["bash-completion/completions/gdbheap*", f"{zsh}/_gdbheap", "fish/vendor_completions.d/gdbheap.fish"]
    for name in ["man/man1/gdbheap.1*", *names]:
        expect(bool(list((prefix / "share").glob(name))), f"no {name} below {prefix}/share")


def wheel(path: str, count: int, offline: bool) -> dict[str, Any]:
    """Install the wheel into a new environment, as a user does, and return a row of figures."""
    environment = Path("/srv/venv")
    shutil.rmtree(environment, ignore_errors=True)
    run(sys.executable, "-m", "venv", str(environment))
    gdbheap = str(environment / "bin" / "gdbheap")
    with planted(count) as pid:
        started = time.monotonic()
        extra = ["--no-index", f"--find-links={Path(path).parent}"] if offline else []
        run(str(environment / "bin" / "pip"), "install", "--only-binary=:all:", *extra, path)
        installed = time.monotonic()
        run(gdbheap, pid)
        answered = time.monotonic()
        answers(gdbheap, pid, count)
        with tempfile.TemporaryDirectory() as home:
            run(gdbheap, "install", HOME=home)
            os.environ["HOME"] = home
            gdb = answers_in_gdb(pid, count)
    recorder_and_replayer(gdbheap)
    pages(environment, "zsh/site-functions")
    return {"gdb": gdb, "pip": round(installed - started, 1), "first answer": round(answered - started, 1)}


def files() -> set[str]:
    """Return every path of this system that a package could have left.

    Files that Python compiled into folders of other packages do not count. A folder of the package itself would also be
    left.
    """
    found: set[str] = set()
    for folder, folders, names in os.walk("/"):
        folders[:] = [name for name in folders if os.path.join(folder, name) not in KEPT and name != "__pycache__"]
        found.update(os.path.join(folder, name) for name in (*folders, *names))
    return found


def apt(*arguments: str) -> None:
    """Run apt-get without questions."""
    run("apt-get", "-qq", "-y", "--no-install-recommends", *arguments, DEBIAN_FRONTEND="noninteractive")


def deb(path: str, count: int) -> dict[str, Any]:
    """Install the Debian package, use it, remove it and purge it. Return a row of figures."""
    before = files()
    with planted(count) as pid:
        started = time.monotonic()
        apt("install", path)
        installed = time.monotonic()
        run("gdbheap", pid)
        answered = time.monotonic()
        answers("gdbheap", pid, count)
        gdb = answers_in_gdb(pid, count)
        recorder_and_replayer("gdbheap")
        pages(Path("/usr"), "zsh/vendor-completions")
        apt("remove", "gdbheap")
        quiet(pid)
    apt("purge", "gdbheap")
    left = sorted(files() - before)
    expect(not left, f"left behind: {' '.join(left)}")
    return {"gdb": gdb, "apt-get": round(installed - started, 1), "first answer": round(answered - started, 1)}


def quiet(pid: str) -> None:
    """Check that the files in /etc that a removed package leaves do not disturb gdb."""
    if shutil.which("gdb"):
        done = subprocess.run(
            ["gdb", "-p", pid, "-batch"], capture_output=True, text=True, timeout=PATIENCE, check=True
        )
        expect("gdbheap" not in done.stdout + done.stderr, f"gdb after the removal: {done.stderr}")


def main(arguments: Sequence[str]) -> None:
    """Try one package."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("package", help="a wheel, or a .deb")
    parser.add_argument("--offline", action="store_true", help="what it needs is beside the wheel")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    options = parser.parse_args(arguments)
    print(f"seed: {options.seed}", flush=True)
    found = [name for name in COMPILERS if shutil.which(name)]
    expect(not found, f"not a clean machine: it has {', '.join(found)}")
    count = random.Random(options.seed).randrange(2000, 20_000)
    if options.package.endswith(".deb"):
        row = deb(options.package, count)
    else:
        row = wheel(options.package, count, options.offline)
    if MUSL:
        row["not supported"] = NOT_SUPPORTED
    print(json.dumps({"python": "{}.{}.{}".format(*sys.version_info), **row}))


if __name__ == "__main__":
    main(sys.argv[1:])
