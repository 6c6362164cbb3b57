"""$heap_block, $heap_size, $heap_type and $heap_owner in gdb's expressions and conditions, and the window of the
TUI."""

from __future__ import annotations

import contextlib
import fcntl
import os
import random
import re
import select
import struct
import subprocess
import termios
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pytest
from support.gdb_side import GDB, batch, compiled, executed, gdb, home, needs_gdb, own_lines
from support.programs import PATIENCE, ask, interpreter_of, running

from gdbheap.contents.python.text.disclosure import VARIABLE
from gdbheap.report.text.style import COLOURS

pytestmark = needs_gdb
CODE = """
import os, random, sys
class Session:
    def __init__(self, number):
        self.data = bytearray(number)
rng = random.Random(int(sys.argv[1]))
sessions = [Session(rng.randrange(600, 90_000)) for _ in range(500)]
print(*(f"{id(one):#x}" for one in sessions), file=sys.stderr, flush=True)
os.read(0, 1)
"""
# A program that keeps an object under a secret key.
KEPT = """
import os, sys
SESSIONS = {sys.argv.pop(): bytearray(5000)}
print(*(f"{id(one):#x}" for one in SESSIONS.values()), file=sys.stderr, flush=True)
os.read(0, 1)
"""
# A program that uses its allocated blocks one after the other.
USES = """
#include <stdio.h>
#include <stdlib.h>
__attribute__((noinline)) void use(void *block) { __asm__ volatile("" : : "r"(block) : "memory"); }
int main(int count, char **sizes)
{
    void *held[64];
    for (int i = 1; i < count; i++)
        held[i] = malloc(strtoul(sizes[i], NULL, 10));
    for (int i = 1; i < count; i++)
        use(held[i]);
    puts("done");
}
"""


def printed(output: str) -> list[str]:
    """Return the values that gdb printed."""
    return re.findall(r"^\$\d+ = (.*)$", output, re.MULTILINE)


def test_as_heap_at_says(rng: random.Random, tmp_path: Path) -> None:
    """Check block, size, type and owner of objects, of an address inside of one, and of an address in no block."""
    with running([interpreter_of("stripped"), "-c", CODE, str(rng.getrandbits(32))], tmp_path) as target:
        addresses = target.stderr.split()
        number = rng.randrange(len(addresses))
        place = int(addresses[number], 16)
        said = ask("at", str(target.pid), hex(place), "--path")
        asked = [
            f"print/x $heap_block({place + 8})", f"print $heap_size({place})", f"print $heap_type({place})",
            f"print $heap_owner({place})", f'print $_streq($heap_type({place}), "__main__.Session")',
            "print $heap_block(8)", "print $heap_size(8)", "print $heap_type(8)", "print $heap_owner(8)",
        ]  # fmt: skip
        done = batch(["-p", str(target.pid)], asked, home(tmp_path))
    block, size, name, owner, same, *none = printed(done.stdout)
    assert (int(block, 16), int(size)) == (said["block"]["address"], said["block"]["size"])
    assert (name, owner) == (f'"{said["object"]["type"]}"', f'"{said["path"]}"')
    assert f"sessions[{number}]" in owner and same == "1"
    assert none == ["0", "0", '"(none)"', '"(none)"']


def test_nothing_is_called_for_a_text(tmp_path: Path) -> None:
    """Check that no function of the process is called: for a string that is no variable's, gdb's printf and eval
    call its malloc(), and a call by gdb may end a program (docs/safety.md)."""
    with running([interpreter_of("stripped"), "-c", CODE, "1"], tmp_path) as target:
        place = target.stderr.split()[0]
        asked = [
            "set may-call-functions off", f'printf "it is %s\n", $heap_type({place})',
            f'eval "echo by %s\\n", $heap_owner({place})', 'printf "%s\n", "a literal"',
        ]  # fmt: skip
        done = batch(["-p", str(target.pid)], asked, home(tmp_path))
        assert target.process.poll() is None
    assert "it is __main__.Session" in done.stdout and "sessions[0]" in done.stdout, done.stdout + done.stderr
    # Once, for the literal alone.
    assert done.stderr.count("may-call-functions is off") == 1, done.stderr


@pytest.mark.parametrize(
    ("expression", "said"),
    [('"abc"', "is not an address"), ("(long) getpid()", "would call a function of the program")],
)
def test_nothing_is_called_for_an_address(expression: str, said: str, tmp_path: Path) -> None:
    """Check that an expression that would call a function of the program is refused, and that gdb's own setting
    stays."""
    with running([interpreter_of("stripped"), "-c", CODE, "1"], tmp_path) as target:
        done = batch(["-p", str(target.pid)], [f"heap at {expression}", "show may-call-functions"], home(tmp_path))
        assert target.process.poll() is None
    assert said in done.stderr, done.stdout + done.stderr
    assert "is on" in done.stdout


def test_no_contents(rng: random.Random, tmp_path: Path) -> None:
    """Check that GDBHEAP_NO_TEXT also holds for expressions, from the first one on and after a command that showed
    keys; without it the path has the program's own key, so the test can fail."""
    key = "".join(rng.choices("abcdefghijklmnop", k=20))
    with running([interpreter_of("stripped"), "-c", KEPT, key], tmp_path) as target:
        place = int(target.stderr.split()[0], 16)
        asked = [f"print $heap_owner({place})", f"heap at {place} --path --no-text", f"print $heap_owner({place})"]
        shown = printed(batch(["-p", str(target.pid)], asked, home(tmp_path)).stdout)
        done = batch(["-p", str(target.pid)], asked, {**home(tmp_path), VARIABLE: "1"})
    assert len(shown) == 2 and all(key in line for line in shown), shown
    hidden = printed(done.stdout)
    assert len(hidden) == 2 and all("SESSIONS" in line for line in hidden), hidden
    assert key not in done.stdout + done.stderr


def test_in_a_condition(rng: random.Random, tmp_path: Path) -> None:
    """Check that a breakpoint stops only where a block is as large as its condition requires."""
    sizes = [rng.choice([rng.randrange(24, 900), rng.randrange(5000, 90_000)]) for _ in range(20)]
    large = [size for size in sizes if size >= 5000]
    with compiled(USES, tmp_path) as program:
        commands = ["break use if $heap_size(block) > 4096", f"run {' '.join(map(str, sizes))}"]
        for _ in large:
            commands += ["print $heap_size(block)", "continue"]
        done = gdb([str(program), "-batch", "-x", "gdbheap", *executed(commands)], home(tmp_path))
    found = [int(value) for value in printed(done.stdout)]
    assert "done" in done.stdout and len(found) == len(large), done.stdout + done.stderr
    assert all(size + 8 <= chunk < size + 40 for chunk, size in zip(found, large))


def test_wrong_arguments(tmp_path: Path) -> None:
    """Check that each wrong argument gives one line, and that the next command is answered."""
    with running([interpreter_of("stripped"), "-c", CODE, "1"], tmp_path) as target:
        asked = ["print $heap_size()", "print $heap_type(1, 2)", "print $heap_size($heap_type)", "print 6 * 7"]
        done = batch(["-p", str(target.pid)], asked, home(tmp_path))
    lines = own_lines(done)
    assert len(lines) == 3 and all("takes one address" in line or "is not an address" in line for line in lines), lines


def test_without_a_process(tmp_path: Path) -> None:
    """Check that the error is one line, as for the commands."""
    done = batch([], ["print $heap_size(8)"], home(tmp_path))
    assert not printed(done.stdout) and "Traceback" not in done.stderr
    assert [line for line in own_lines(done) if "no process and no core" in line], done.stderr


def until(screen: IO[bytes], text: str) -> str:
    """Read the terminal's output until the text appears in it; return its letters and digits."""
    return plain(drawn(screen, text))


def plain(seen: bytes) -> str:
    """Return the terminal's output without escapes."""
    return re.sub(r"\x1b(\[[0-9;?]*[a-zA-Z]|\(.)", " ", seen.decode(errors="replace"))


def drawn(screen: IO[bytes], text: str) -> bytes:
    """Read the terminal's output until the text appears in it; return all of it."""
    seen, deadline = b"", time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        if select.select([screen], [], [], 0.5)[0]:
            seen += screen.read(65536)
        if text in plain(seen):
            return seen
    raise AssertionError(f"{text!r} was not drawn: {seen!r}")


# A window that behaves like curses: a character in the last column moves the cursor to the next row.
WINDOW = """
from gdbheap.commands.gdb import registration, window
class Window:
    width, height, title = COLUMNS, 40, ""
    def is_valid(self): return True
    def erase(self): self.rows = [""]
    def write(self, text):
        for character in text:
            if character != "\\n":
                self.rows[-1] += character
            if character == "\\n" or len(self.rows[-1]) == self.width:
                self.rows.append("")
shown = Window()
window.LedgerWindow(shown, registration._ledger).render()
print("\\n".join("|" + row for row in shown.rows))
"""


@pytest.mark.parametrize("columns", [40, 80, 150])
def test_rows_of_the_window(columns: int, tmp_path: Path) -> None:
    """Check that the ledger's lines are shown one below the other, without empty lines between them, for any number of
    columns.
    """
    script = tmp_path / "window.py"
    script.write_text(WINDOW.replace("COLUMNS", str(columns)))
    with running([interpreter_of("stripped"), "-c", CODE, "1"], tmp_path) as target:
        done = batch(["-p", str(target.pid)], [f"source {script}"], home(tmp_path))
    rows = re.findall(r"^\|(.*)$", done.stdout, re.MULTILINE)
    table = rows[next(place for place, row in enumerate(rows) if row.startswith("what")) :]
    end = next(place for place, row in enumerate(table) if row.startswith("total"))
    assert end > 8 and all(0 < len(row) < columns for row in table[:end]), rows


@contextlib.contextmanager
def terminal_of(columns: int, tmp_path: Path) -> Iterator[IO[bytes]]:
    """Yield a gdb that is attached to a process, in a terminal with ``columns`` columns."""
    pty = pytest.importorskip("pty")
    try:
        master, slave = pty.openpty()
    except OSError:
        pytest.skip("no terminal is available")
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 60, columns, 0, 0))
    environment = {**home(tmp_path), "TERM": "xterm"}
    command = [interpreter_of("stripped"), "-c", CODE, "1"]
    with running(command, tmp_path) as target, open(master, "wb+", 0) as screen:
        words = [GDB, "-q", "-iex", "set debuginfod enabled off", "-p", str(target.pid), "-x", "gdbheap"]
        run = subprocess.Popen(words, env=environment, stdin=slave, stdout=slave, stderr=slave, start_new_session=True)
        os.close(slave)
        try:
            until(screen, "(gdb) ")
            yield screen
        finally:
            run.kill()
            run.wait()


def test_colours_are_gdbs(tmp_path: Path) -> None:
    """Check that answers have colours if gdb's own styles are enabled, and none if the user has turned them off."""
    with terminal_of(150, tmp_path) as screen:
        for is_enabled in (True, False):
            setting = "on" if is_enabled else "off"
            screen.write(f"set style enabled {setting}\nheap check\nprint 6 * 7\n".encode())
            seen = drawn(screen, "= 42")
            assert "Nothing is damaged" in plain(seen)
            assert (COLOURS["sound"].encode() in seen) == is_enabled


def test_the_window(tmp_path: Path) -> None:
    """Check that ``layout heap`` shows the first page, that it scrolls to its end, and that it disappears with the
    layout."""
    with terminal_of(150, tmp_path) as screen:
        screen.write(b"layout heap\n")
        seen = until(screen, "blocks in use")
        screen.write(b"+ 60 heap\n")
        seen += until(screen, "total")
        screen.write(b"tui disable\nprint 6 * 7\n")
        until(screen, "= 42")
    assert "glibc malloc" in seen and "Traceback" not in seen
