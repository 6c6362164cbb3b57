"""Memory that only an exception holds while it is handled: the page names the exception and the function."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from support.programs import ask, interpreter_of_release, running, since

MIB = 1 << 20
FAIL = (
    "import sys\n"
    "def rows(count): return [bytes(4000 + n % 9) for n in range(count)]\n"
    "def fail():\n"
    "    local = rows({local})\n"
    "    raise ValueError(rows({args}))\n"
)
WAIT = "print(flush=True); sys.stdin.readline()"
# Programs that handle the exception directly, in a thread, in a generator, and below the function of another handler.
PLAIN = f"def work():\n    try: fail()\n    except ValueError: {WAIT}\n"
BLOCKS = {
    "plain": f"{PLAIN}work()\n",
    "thread": (
        "import threading\n"
        "def work():\n    try: fail()\n    except ValueError: handled.set(); threading.Event().wait()\n"
        "handled = threading.Event()\n"
        f"threading.Thread(target=work, daemon=True).start(); handled.wait(); {WAIT}\n"
    ),
    "generator": (
        "def work():\n    try: fail()\n    except ValueError:\n        yield 1\n"
        f"        {WAIT}\nfor _ in work(): pass\n"
    ),
    "outer": (
        "def numbers(): yield 1; yield 2\n"
        f"def work():\n    try: fail()\n    except ValueError:\n        for _ in numbers(): {WAIT}\nwork()\n"
    ),
}  # fmt: skip
GENERATOR = f"def work():\n    try: fail()\n    except ValueError: yield 1\nkept = work(); next(kept); {WAIT}\n"


def holders(code: str, release: str, rng: random.Random, folder: Path) -> tuple[list[dict[str, Any]], int, int]:
    """Return the first page's holders of a program, and the bytes of an argument and of a variable."""
    args, local = rng.randrange(12_000, 14_000), rng.randrange(4000, 6000)
    program = FAIL.format(args=args, local=local) + code
    (folder / "program.py").write_text(program)
    with running([interpreter_of_release(release).executable, str(folder / "program.py")], folder) as target:
        rows = ask("", str(target.pid))["holders"]
    return rows, args * 4000, local * 4000


@pytest.mark.parametrize("block", BLOCKS)
@pytest.mark.parametrize("release", since("3.6"))
def test_exception_that_is_handled(release: str, block: str, rng: random.Random, tmp_path: Path) -> None:
    """Check that the exception's argument and the variable of an ended function are two rows with their bytes, each
    named by the handling function and its line."""
    rows, args, local = holders(BLOCKS[block], release, rng, tmp_path)
    lines = (tmp_path / "program.py").read_text().splitlines()
    line = next(number for number, text in enumerate(lines, 1) if "wait()" in text or "readline" in text)
    name = f"the exception that work() handles at program.py:{line}"
    argument, variable = rows[:2]
    assert argument["path"] == f"{name} .args [0]" and args <= argument["bytes"] < 1.1 * args
    assert variable["path"].startswith(f"{name} .__traceback__ .tb_next .tb_frame ")
    assert "local variable local in fail()" in variable["path"] and local <= variable["bytes"] < 1.1 * local


@pytest.mark.parametrize("release", since("3.7"))
def test_exception_of_a_generator(release: str, rng: random.Random, tmp_path: Path) -> None:
    """Check that a generator that was left inside the handler holds the exception, and that the path to the largest
    block names the generator."""
    rows, args, _local = holders(GENERATOR, release, rng, tmp_path)
    assert rows[0]["path"].startswith("kept") and rows[0]["bytes"] >= args
    assert ".gi_frame: the exception that work() handles at program.py:" in rows[0]["way"]
