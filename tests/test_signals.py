"""A signal that asks gdbheap to end is obeyed wherever it arrives, and one that was to be ignored is ignored."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import NoReturn

import pytest
from support import busy
from support.programs import GDBHEAP, PATIENCE, python_program, running

from gdbheap._native import Frozen

# argv: a signal. It arrives in the callback of a weak reference, as each import has one: Python drops the exception.
DROPPED = """
import signal, sys, time, weakref
from gdbheap.commands.shell import main
class Kept: pass
def answer(words):
    kept = Kept()
    reference = weakref.ref(kept, lambda _: signal.raise_signal(int(words[0])))
    del kept
    time.sleep(120)
main._run = answer
sys.exit(main.main())
"""
# argv: signals. The first ends the command; the others come while the line about it is written.
SEVERAL = """
import signal, sys
from gdbheap.commands.shell import main, streams
first, *others = map(int, sys.argv[1:])
complain = streams.complain
def told(message, *status):
    for number in others:
        signal.raise_signal(number)
    return complain(message, *status)
streams.complain = told
main._run = lambda words: signal.raise_signal(first)
main.script()
"""
# argv: a signal. Python turns the exception into another error, as during the creation of a class (before 3.12).
WRAPPED = """
import signal, sys
from gdbheap.commands.shell import main
def answer(words):
    try:
        signal.raise_signal(int(words[0]))
    except KeyboardInterrupt as interrupt:
        raise RuntimeError("Error calling __set_name__") from interrupt
main._of_any = answer
main.script()
"""
MESSAGES = {signal.SIGINT: "interrupted", signal.SIGTERM: "ended by SIGTERM", signal.SIGHUP: "ended by SIGHUP"}


class Told(Exception):
    """The exception that the signal's handler raises."""


def _tell(_number: int, _frame: object) -> NoReturn:
    raise Told


@pytest.mark.parametrize("program", [DROPPED, WRAPPED], ids=["drops", "wraps"])
@pytest.mark.parametrize("sent", MESSAGES)
def test_where_python_changes_it(sent: signal.Signals, program: str) -> None:
    """Check that a dropped exception is raised again a moment later, and that a wrapped one is not reported as an
    internal error."""
    command = [sys.executable, "-I", "-c", program, str(int(sent))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 1
    assert done.stderr.splitlines() == [f"gdbheap: {MESSAGES[sent]}; a process that was stopped runs on"]


@pytest.mark.parametrize("sent", MESSAGES)
@pytest.mark.parametrize("second", MESSAGES)
def test_a_second_while_the_line_is_written(sent: signal.Signals, second: signal.Signals) -> None:
    """Check that the line is about the first signal, that nothing else is printed, and that the same signal again
    ends the process at once."""
    command = [sys.executable, "-I", "-c", SEVERAL, str(int(sent)), str(int(second))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    assert done.stderr.splitlines() == [f"gdbheap: {MESSAGES[sent]}; a process that was stopped runs on"]
    assert done.returncode == 1
    if sent == second:
        done = subprocess.run([*command, str(int(second))], capture_output=True, text=True, timeout=PATIENCE)
        assert (done.stderr, done.returncode) == ("", -second)


def test_while_a_copy_is_ended(tmp_path: Path, rng: random.Random) -> None:
    """Check that an exception of a handler during a wait in native code is raised there, even if the wait ends by
    itself."""
    main, before = threading.get_ident(), signal.signal(signal.SIGUSR1, _tell)
    try:
        with busy.started("blocked", tmp_path, 16) as target:
            for _ in range(20):
                copy = Frozen(target.pid)
                copy.let_go()
                teller = threading.Timer(rng.uniform(0.0001, 0.003), signal.pthread_kill, (main, signal.SIGUSR1))
                with pytest.raises(Told):
                    teller.start()
                    copy.end()
                    time.sleep(PATIENCE)
                # The signal may have come before the end began.
                copy.end()
            target.unharmed(but=("EINTR",))
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_ignored_from_the_beginning(tmp_path: Path, rng: random.Random) -> None:
    """Check a session with signals ignored, as by nohup or a shell's trap: it continues."""

    def ignore() -> None:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)

    with running(python_program("stripped", "fragmented", rng.getrandbits(30), 2), tmp_path) as target:
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        command = [str(GDBHEAP), "shell", str(target.pid)]
        process = subprocess.Popen(command, text=True, env=os.environ, preexec_fn=ignore, **pipes)
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write("info --json\n")
        process.stdin.flush()
        assert process.stdout.readline().startswith("{")
        process.send_signal(signal.SIGHUP)
        output, errors = process.communicate("info --json\n", timeout=PATIENCE)
        assert (len(output.splitlines()), errors, process.returncode) == (1, "", 0)
