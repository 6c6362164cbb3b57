"""Follow a process with a thread that sleeps uninterruptibly (the parent in a vfork), before or after the sleep begins:
no command waits for the thread, the process runs on, and its code is restored.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from support import busy
from support.busy import Busy, wait_for
from support.following import becomes_whole, changed_code, code, following, patched
from support.programs import GDBHEAP, PATIENCE, interpreter_of

import gdbheap.targets.following as following_module
from gdbheap import _native
from gdbheap.host.procfs import ProcessFolder
from gdbheap.targets.chosen_processes import Programs
from gdbheap.watching.watcher import Watcher, WatchRequest

COUNTERS = 3
FOLLOWING = {"growth": ["growth"], "catch": ["catch", "malloc"]}


def states(pid: int) -> list[str]:
    """Return the state letter of each thread."""
    return [path.read_text().rpartition(")")[2].split()[0] for path in Path(f"/proc/{pid}/task").glob("*/stat")]


def tracers(pid: int) -> set[str]:
    """Return the tracers of its threads."""
    texts = [path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/status")]
    return {text.partition("TracerPid:")[2].split()[0] for text in texts} - {"0"}


def check_runs(target: Busy) -> None:
    """Check that all counting threads continue."""
    before = target.words()[:COUNTERS]
    wait_for(lambda: all(now > then for now, then in zip(target.words(), before)), "it stands still")


@pytest.fixture
def target(tmp_path: Path) -> Iterator[Busy]:
    """Yield a process that starts a vfork on request."""
    with busy.started("lending", tmp_path, counters=COUNTERS) as found:
        yield found


def tell(target: Busy) -> None:
    """Let the program begin a vfork, or end it."""
    assert target.process.stdin is not None
    target.process.stdin.write(b".")
    target.process.stdin.flush()


def lend(target: Busy) -> None:
    """Let one thread sleep uninterruptibly."""
    tell(target)
    # A thread that waits for the disk is in state D, too, but has no child.
    wait_for(lambda: bool(busy.children_of(target.pid)) and "D" in states(target.pid), "nobody is in state D")


@pytest.mark.parametrize("number", [None, signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("how", FOLLOWING)
def test_it_is_not_followed(how: str, number: signal.Signals | None, target: Busy) -> None:
    """Check that one line says why, also if a signal ends it before, and that nothing is changed."""
    before = code(target.pid)
    lend(target)
    noun, *rest = FOLLOWING[how]
    command = [str(GDBHEAP), noun, str(target.pid), *rest, *(["--duration=0.1"] if number is None else [])]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as follower:
        try:
            if number is not None:
                wait_for(lambda: bool(tracers(target.pid)), "nobody traces it")
                follower.send_signal(number)
            out, errors = follower.communicate(timeout=PATIENCE)
        finally:
            follower.kill()
    assert (out, len(errors.splitlines())) == ("", 1), errors
    if number is None:
        assert follower.returncode == 5 and "state D" in errors, errors
    else:
        assert follower.returncode != 0
    assert code(target.pid) == before
    wait_for(lambda: not tracers(target.pid), "somebody traces it still")
    check_runs(target)


def guards(pid: int) -> list[int]:
    """Return the guards that hold a process's folder open."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if folder.joinpath("comm").read_bytes() == b"gdbheap guard\n":
                links = {os.readlink(link) for link in folder.joinpath("fd").iterdir()}
                found += [int(folder.name)] if f"/proc/{pid}" in links else []
        except OSError:
            continue
    return found


def is_at_work(guard: int) -> bool:
    """Return whether the guard still runs: an uncollected one has nothing open."""
    try:
        return any(Path(f"/proc/{guard}/fd").iterdir())
    except OSError:
        return False


def followed_until_it_sleeps(target: Busy, *arguments: str) -> None:
    """Follow the process, let a thread sleep, and end: the answer is partial, and says why."""
    with following(target.pid, *arguments) as follower:
        lend(target)
        follower.process.send_signal(signal.SIGINT)
        out, errors = follower.process.communicate(timeout=PATIENCE)
    answer = json.loads(out)
    assert follower.process.returncode == 1, errors
    assert [warning for warning in answer["warnings"] if "state D" in warning], answer["warnings"]
    # The others were stopped for moments.
    assert answer["cost"]["held"] < 5


@pytest.mark.parametrize("how", FOLLOWING)
def test_its_code_is_put_back_later(how: str, target: Busy) -> None:
    """Check that the process runs on meanwhile and is never stopped for long, and that the code is restored once
    that thread wakes."""
    before = code(target.pid)
    noun, *rest = FOLLOWING[how]
    followed_until_it_sleeps(target, noun, str(target.pid), *rest)
    assert patched(target.pid, before) > 0
    check_runs(target)
    wait_for(lambda: not tracers(target.pid), "it is held while nothing can be done")
    assert guards(target.pid)
    tell(target)
    assert becomes_whole(target.pid, before, PATIENCE)
    check_runs(target)
    wait_for(lambda: not tracers(target.pid) and not guards(target.pid), "somebody stays")


def test_nobody_stays_with_a_process_that_ends(target: Busy) -> None:
    """Check that a guard that could not restore the code ends with its process."""
    followed_until_it_sleeps(target, "growth", str(target.pid))
    left = guards(target.pid)
    assert left
    target.process.kill()
    target.process.wait()
    wait_for(lambda: not any(map(is_at_work, left)), "a guard stays")


def test_the_next_run_takes_it_out(target: Busy) -> None:
    """Check that the next run finds the patches of an earlier one, and reports them as long as they cannot be
    removed."""
    before = code(target.pid)
    followed_until_it_sleeps(target, "growth", str(target.pid))
    for guard in guards(target.pid):
        os.kill(guard, signal.SIGKILL)
    command = [str(GDBHEAP), "growth", str(target.pid), "--duration=0.1"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert (done.returncode, len(done.stderr.splitlines())) == (1, 1), done.stderr
    assert "cannot be removed now" in done.stderr
    check_runs(target)
    tell(target)
    wait_for(lambda: "D" not in states(target.pid), "it sleeps still")
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == 0, done.stderr
    assert patched(target.pid, before) == 0


# A thread whose child in a vfork waits for a line of standard input, once another thread told it to begin.
LENDER = """
#include <unistd.h>
void lend(void) {
    char byte;
    if (read(0, &byte, 1) > 0 && vfork() == 0) {
        read(0, &byte, 1);
        _exit(0);
    }
}
"""
PYTHON = """
import ctypes, sys, threading, time
threading.Thread(target=ctypes.CDLL(sys.argv[1]).lend, daemon=True).start()
while True:
    time.sleep(0.01)
"""


@pytest.fixture
def python(tmp_path: Path) -> Iterator[Busy]:
    """Yield a Python process that starts a vfork on request."""
    source, library = tmp_path / "lender.c", tmp_path / "lender.so"
    source.write_text(LENDER)
    subprocess.run(["gcc", "-O1", "-shared", "-fPIC", str(source), "-o", str(library)], check=True)
    command = [interpreter_of("stripped"), "-I", "-c", PYTHON, str(library)]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as process:
        target = Busy(process, tmp_path)
        try:
            wait_for(lambda: len(states(target.pid)) == 2, "there is no second thread")
            yield target
        finally:
            process.kill()


def test_a_watch_says_what_it_leaves(python: Busy, tmp_path: Path) -> None:
    """Check that remaining patches are a separate event, with status 1."""
    before = changed_code(python.pid)
    words = [str(GDBHEAP), "watch", str(python.pid), "--on-memory-error", f"--output={tmp_path}", "--json"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as watch:
        try:
            wait_for(lambda: changed_code(python.pid) != before, "it is not followed")
            assert watch.stdout is not None
            assert json.loads(watch.stdout.readline())["event"] == "began"
            lend(python)
            watch.send_signal(signal.SIGINT)
            out, errors = watch.communicate(timeout=PATIENCE)
        finally:
            watch.kill()
    told = [json.loads(line) for line in out.splitlines()]
    assert [event["event"] for event in told] == ["unrestored", "end"], out + errors
    assert watch.returncode == 1 and "state D" in told[0]["errors"][0]
    tell(python)
    wait_for(lambda: not guards(python.pid), "the code is not put back")


def test_a_watch_that_ends_as_it_begins_says_so(python: Busy, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that remaining patches are reported even if Ctrl-C comes just after the code was changed."""
    start = following_module._start

    def interrupted(follower: _native.Follower, folder: ProcessFolder) -> None:
        start(follower, folder)
        lend(python)
        raise KeyboardInterrupt

    monkeypatch.setattr(following_module, "_start", interrupted)
    watcher = Watcher(Programs([python.pid]), WatchRequest(memory_errors=True))
    with pytest.raises(KeyboardInterrupt):
        for _event in watcher.events():
            pass
    (event,) = watcher.end()
    assert event.kind == "unrestored" and "state D" in event.reason
    tell(python)
    wait_for(lambda: not guards(python.pid), "the code is not put back")
