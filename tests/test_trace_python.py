"""``gdbheap trace --pymalloc``: CPython's own counts of its blocks against the log; pymalloc works as without it."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
from pathlib import Path

import pytest
from reference import call_log
from reference.call_log import PYTHON, PYTHON_CALLOC, PYTHON_FREE, PYTHON_MALLOC, PYTHON_REALLOC, Call
from support.programs import gdbheap, interpreter_of_release, plain_environment, since
from support.recorded import recorder_environment

from gdbheap.tracing.recorder_files import OF_PYTHON

MARK, MOMENTS = 70_000, 12
RELEASES = [release for release in since("3.7") if release not in ("3.14", "3.15")]
# Allocates and frees at random, also by resizing across pymalloc's limit. Between two blocks of unique sizes, the
# interpreter prints how many blocks are in use, including those from malloc. At the end: addresses and sizes of
# objects.
PROGRAM = """
import os, random, sys
count, mark, kept, counts = sys.getallocatedblocks, int(sys.argv[2]), [None] * 3000, [0] * int(sys.argv[3])
random.seed(int(sys.argv[1]))
for moment in range(len(counts)):
    for _ in range(random.randrange(1000)):
        place, what = random.randrange(3000), random.randrange(5)
        if what == 0:
            kept[place] = bytes(random.randrange(1, 900))
        elif what == 1:
            kept[place] = bytearray(random.randrange(1, 900))
        elif what == 2 and type(kept[place]) is bytearray:
            del kept[place][random.randrange(len(kept[place]) + 1):]
        elif what == 3 and type(kept[place]) is bytearray:
            kept[place].extend(b"x" * random.randrange(900))
        else:
            kept[place] = [random.random() for _ in range(random.randrange(50))]
    first = bytes(mark + 2 * moment)
    number = count()
    second = bytes(mark + 2 * moment + 1)
    counts[moment] = number
    del first, second
import json
places = [(id(it), sys.getsizeof(it)) for it in kept if type(it) is bytes]
places += [(id(it), it.__sizeof__()) for row in kept if type(row) is list for it in row]
json.dump({"counts": counts, "places": places}, sys.stdout)
sys.stdout.flush()
os.kill(os.getpid(), 9)
"""


class Books:
    """The blocks of Python in use after each call: sizes by address."""

    def __init__(self) -> None:
        self.python: dict[int, int] = {}
        self.unknown = 0

    def add(self, call: Call) -> None:
        """Add the next call."""
        if call.kind in (PYTHON_FREE, PYTHON_REALLOC) and (
            gone := call.old or call.result * (call.kind == PYTHON_FREE)
        ):
            self.unknown += self.python.pop(gone, None) is None
        if call.result and call.kind in (PYTHON_MALLOC, PYTHON_CALLOC, PYTHON_REALLOC):
            assert call.result not in self.python
            self.python[call.result] = call.size


def calls_of(folder: Path) -> list[Call]:
    """Return all calls of the only process."""
    (data,) = call_log.files_of(folder).values()
    return list(call_log.calls_of(data, python=True))


@pytest.mark.parametrize("release", RELEASES)
def test_what_the_interpreter_counts(release: str, rng: random.Random, tmp_path: Path) -> None:
    """Check that Python has as many blocks in use as the log at each of its moments, and that at the end each object
    is at its id(), with the interpreter's size."""
    interpreter = interpreter_of_release(release).executable
    folder = tmp_path / "calls"
    folder.mkdir(0o700)
    environment = {**plain_environment(), **recorder_environment(folder), OF_PYTHON: "1"}
    words = [interpreter, "-S", "-c", PROGRAM, str(rng.randrange(1 << 30)), str(MARK), str(MOMENTS)]
    done = subprocess.run(words, env=environment, capture_output=True, text=True)
    assert done.returncode == -9, done.stderr
    said = json.loads(done.stdout)
    books, moments, open_moment = Books(), {}, -1
    calls = calls_of(folder)
    head = next(call.size for call in calls if call.kind in PYTHON and MARK < call.size < MARK + 60) - MARK
    for call in calls:
        books.add(call)
        number = call.size - MARK - head if call.kind in PYTHON else -1
        if 0 <= number < 2 * MOMENTS:
            open_moment = number // 2 if number % 2 == 0 else -1
        if open_moment >= 0:
            moments.setdefault(open_moment, []).append(len(books.python))
    assert books.unknown == 0
    assert len(moments) == MOMENTS
    for moment, counted in enumerate(said["counts"]):
        assert counted in moments[moment] and len(moments[moment]) < 12, (moment, counted, moments[moment])
    assert len(said["places"]) > 500
    for address, size in said["places"]:
        assert books.python.get(address) == size


@pytest.mark.parametrize("release", RELEASES)
def test_pymalloc_is_as_without_it(release: str, tmp_path: Path) -> None:
    """Check that with fixed addresses there are as many blocks, and that each object is at the same place of a page."""
    if shutil.which("setarch") is None or subprocess.run(["setarch", "-R", "true"], capture_output=True).returncode:
        pytest.skip("addresses cannot be fixed here")
    interpreter = interpreter_of_release(release).executable
    program = (
        "import sys\nkept = [bytes(i % 600) for i in range(20000)]\ndel kept[::3]\n"
        "print(sys.getallocatedblocks(), [id(it) % 4096 for it in kept if len(it) < 400][-2000:])"
    )
    outputs = []
    for options in ([], ["--pymalloc"]):
        # The variable that requests it is one more object in os.environ: the other run has another one.
        words = [
            "setarch",
            "-R",
            "env",
            "PYTHONHASHSEED=0",
            *([] if options else [f"{OF_PYTHON[:-1]}_=1"]),
            interpreter,
        ]
        place = str(tmp_path / f"calls{len(outputs)}.log")
        words_of_trace = ["trace", "-o", place, *options, "--", *words, "-S", "-c", program]
        done = gdbheap(*words_of_trace)
        assert done.returncode == 0, done.stderr
        assert ("of Python's allocator" in done.stderr) is bool(options)
        outputs.append(done.stdout)
    assert outputs[0] == outputs[1]


def test_a_replay_leaves_python_s_calls_out(rng: random.Random, tmp_path: Path) -> None:
    """Check that a replay makes exactly as many calls as the recorded calls of malloc, and that the same number of
    bytes is live at its end.
    """
    interpreter = interpreter_of_release("3.11").executable
    log = tmp_path / "calls.log"
    program = f"import json; [json.dumps(list(range(i))) for i in range({rng.randrange(300, 900)})]"
    done = gdbheap("trace", "-o", str(log), "--pymalloc", "--json", "--", interpreter, "-c", program)
    (process,) = json.loads(done.stdout)["rows"]
    python = process["of_python"]
    assert python["unknown"] == 0 and python["calls"] > 10 * process["calls"]
    assert 0 < python["live_bytes"] <= python["peak_bytes"] and python["live_blocks"] > 0
    replayed = json.loads(gdbheap("replay", str(log), "--json").stdout)
    assert (replayed["calls"], replayed["unknown"], replayed["live_bytes"]) == (
        process["calls"],
        0,
        process["live_bytes"],
    )


@pytest.mark.parametrize("chosen", ["malloc", "pymalloc_debug"])
def test_not_seen(chosen: str, tmp_path: Path) -> None:
    """Check that an interpreter that sets its own allocator is reported as not seen, and is unharmed."""
    interpreter = interpreter_of_release("3.11").executable
    words = ["env", f"PYTHONMALLOC={chosen}", interpreter, "-c", "print(sum(range(9)))"]
    done = gdbheap("trace", "-o", str(tmp_path / "calls.log"), "--pymalloc", "--", *words)
    assert (done.returncode, done.stdout) == (0, "36\n")
    assert "no calls of Python's allocator were seen" in done.stderr


def test_a_forked_child_and_threads(rng: random.Random, tmp_path: Path) -> None:
    """Check that a child's own blocks are known, and that its parent's blocks are counted when it frees them."""
    interpreter = interpreter_of_release("3.11").executable
    program = (
        "import os, threading\nkept = [bytes(i % 400) for i in range(1000)]\n"
        "def work():\n    for i in range(2000): mine = [bytes(i % 600) for i in range(20)]\n"
        "threads = [threading.Thread(target=work) for _ in range(4)]\n"
        "[thread.start() for thread in threads]\n"
        "pid = os.fork()\n"
        "if pid == 0:\n    kept.clear()\n    os._exit(0)\n"
        "[thread.join() for thread in threads]\nos.waitpid(pid, 0)"
    )
    done = gdbheap("trace", "-o", str(tmp_path / "calls.log"), "--pymalloc", "--json", "--", interpreter, "-c", program)
    parent, child = json.loads(done.stdout)["rows"]
    assert parent["of_python"]["unknown"] == 0 and parent["of_python"]["calls"] > 160_000
    assert child["of_python"]["unknown"] > 900
