"""Twenty causes of a process that is too big: the start of each, the true answer, and the required parts of an answer.

An answer is the text of a reader of gdbheap, such as a coding agent, about a case.
"""

from __future__ import annotations

import contextlib
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from support.planted import tool
from support.planted_holders import extension
from support.programs import KINDS, interpreter_of
from support.reports import FOLDER, REPORTS, Report, command_of, ready, rest, started

PROGRAMS = Path(__file__).resolve().parent / "programs"
QUESTION = "It uses more memory than we expect. What is the cause, and what should we do?"


@dataclass(frozen=True)
class Case:
    """A cause: its program (of this folder, or of a public report in tests/reports), the truth, and patterns: all of
    ``cause`` and one of ``remedy`` must be in an answer. ``question``: the question for the reader; ``wrong``:
    patterns that may not be in it."""

    name: str
    program: str
    truth: str
    cause: tuple[str, ...]
    remedy: tuple[str, ...]
    question: str = QUESTION
    wrong: tuple[str, ...] = ()

    @property
    def report(self) -> Report | None:
        """Return the public report with that program, if it is one."""
        return next((report for report in REPORTS if report.name == self.program), None)

    def judge(self, answer: str) -> tuple[bool, bool]:
        """Return whether an answer names the cause, and the remedy."""
        words = " ".join(answer.split())
        found = all(_has(pattern, words) for pattern in self.cause) and not any(_has(one, words) for one in self.wrong)
        return found, any(_has(pattern, words) for pattern in self.remedy)


def _has(pattern: str, words: str) -> bool:
    return re.search(pattern, words, re.IGNORECASE) is not None


# Other names for the programs of reports, as their own names tell too much.
CALLED = {
    "module_dict": "orders.py", "kept_traceback": "worker.py", "views": "preview.py", "ended_thread": "planner",
    "pinned_top": "exporter", "huge_pages": "store", "lazily_freed": "buffers", "forked_readers": "loader.py",
    "shared_memory_files": "camera.py", "idle_jemalloc": "proxy", "overflow": "sensors",
}  # fmt: skip
LIMIT = (r"limit|bound|evict|maxsize|LRU|TTL|drop|clear|remove|delet|cap\b|prune|expir",)
TRIM = (r"malloc_trim|trim",)
CASES: tuple[Case, ...] = (
    Case("01", "module_dict", "the dict `cache` of 20,000 entries: 82 MiB", (r"\bcache\b", r"dict"), LIMIT),
    Case("02", "search.py", "an lru_cache without a limit on Query.rank", (r"lru_cache", r"rank"), LIMIT),
    Case(
        "03", "feed.py", "4,000 asyncio tasks wait in Upstream.fetch and keep their payloads",
        (r"tasks?", r"4,?000", r"wait|pending|fetch"), (r"timeout|limit|bound|semaphore|cancel|set\(\)|deadline",),
    ),
    Case(
        "04", "kept_traceback", "frames of kept exceptions keep the variable `scratch`",
        (r"traceback|exception", r"scratch|frame|results"), (r"with_traceback|text|str\(|clear|format|traceback",),
    ),
    Case("05", "views", "60 small views keep 60 large arrays", (r"view|slice", r"previews|60"), (r"copy",)),
    Case(
        "06", "ingest.py", "a C extension forgets references and blocks",
        (r"extension|C code|native|scanner", r"lost|leak|reference|unreachable"),
        (r"Py_DECREF|free\(|refcount|reference|fix|mend|trace|catch",),
    ),
    Case("07", "ended_thread", "the arena of an ended thread has 70 MiB free", (r"arena", r"free|kept"), TRIM),
    Case("08", "pinned_top", "a string at the end of the heap pins 174 MiB of free memory",
         (r"free", r"pin|last|top|hole|fragment"), TRIM),
    Case("09", "huge_pages", "huge pages of which all but a few bytes are zeros",
         (r"huge ?page|THP",), (r"MADV_NOHUGEPAGE|THP_DISABLE|disable|never|nohuge",)),
    Case("10", "lazily_freed", "150 of 160 MiB are given back lazily: RSS is no measure here",
         (r"MADV_FREE|lazily",), (r"nothing|reclaim|kernel|MADV_DONTNEED|pressure|no action|harmless",)),
    Case(
        "11", "forked_readers", "two workers read a list: 92 MiB became private by reference counts",
        (r"fork|child|worker", r"reference count|refcount|copy-on-write|COW"),
        (r"gc\.freeze|array|numpy|arrow|mmap|shared|preload",),
        "It and its workers use more memory than we expect. What is the cause, and what should we do?"),
    Case(
        "12", "index.py", "a private mapping of index.db was written: 96 MiB of copied pages",
        (r"mmap|mapp", r"index\.db|table|private|file"), (r"MAP_SHARED|ACCESS_|shared|read-only|unmap|close|flush",),
    ),
    Case("13", "shared_memory_files", "three files of 20 MiB in /dev/shm are mapped by nobody",
         (r"/dev/shm|shared memory|tmpfs",), (r"unlink|remove|delete|rm ",),
         "The memory of its container grows although its own RSS does not. What is the cause, and what should we do?"),
    Case("14", "idle_jemalloc", "jemalloc keeps 158 MiB of dirty pages: nothing advances its decay",
         (r"jemalloc", r"dirty|decay|extent|free|kept|idle"), (r"background_thread|decay|purge",)),
    Case("15", "postgresql", "4,000 prepared statements",
         (r"prepared statement|CachedPlan",), (r"DEALLOCATE|DISCARD|statement cache|limit|close|fewer",)),
    Case("16", "scene.cpp", "std::shared_ptr in a circle: scenes that were closed are never freed",
         (r"SceneNode|shared_ptr", r"circle|cycl|circular|point to (one another|each other)|lost|leak"),
         (r"weak_ptr|break",)),
    Case("17", "overflow", "a text of 28 bytes is written into a block of 24",
         (r"overflow|beyond|past|overr[ua]n|too small|corrupt", r"malloc|block|heap|buffer|row"),
         (r"strlen|\+ ?1|size|length|snprintf|strdup|allocate|larger|bound",),
         "The program died and left this core. What is the cause, and what should we do?"),
    Case("18", "gateway.py", "`audit` grows by 2 MB a second; `routes` is large but constant",
         (r"\baudit\b",), LIMIT, "It grows all the time. What grows, and what should we do?"),
    Case("19", "cluster.py", "80 MiB are one region that two processes share",
         (r"shared|share", r"80"), (r"once|twice|PSS|do not add|count|unmap|nothing|expected|fine|unlink|double",),
         "It and its child have 90 MB each. Do they need 180 MB of the machine? What should we do?"),
    Case("20", "catalog.py", "nothing is wrong: a dozen tables that the program needs",
         (r"no (single|one |obvious|clear|dominant|leak|problem|cause)|nothing|normal|healthy|not a leak|evenly",),
         (r"nothing|no action|no fix|none|accept|fine|not needed|leave|normal|unnecessary|only if|do not|don't",),
         wrong=(r"is a leak\b", r"leak in (prices|names|stock)")),
)  # fmt: skip


@contextlib.contextmanager
def running_case(case: Case) -> Iterator[str]:
    """Yield the target of a case: a pid, or the path of a core.

    The program's path reveals nothing about the case. Skip the test if something that it needs is missing.
    """
    with tempfile.TemporaryDirectory(prefix="svc-") as name:
        folder = Path(name)
        report, called = case.report, CALLED.get(case.program)
        if report is not None and called is None:
            with started(report, folder) as target:
                yield target
            return
        if report is not None:
            command = _renamed(command_of(report, folder), report, folder / str(called))
            with ready(command, folder, dict(report.environment)) as running:
                rest(running.pid)
                yield str(running.aborted_core() if report.core else running.pid)
            return
        with ready(_command(case, folder), folder, {}) as running:
            if case.name != "18":
                rest(running.pid)
            yield str(running.pid)


def _renamed(command: list[str], report: Report, path: Path) -> list[str]:
    """Return the command of a report, whose program is copied to a path."""
    place = command.index(str(FOLDER / report.program)) if report.program.endswith(".py") else 0
    shutil.copy(command[place], path)
    return [*command[:place], str(path), *command[place + 1 :]]


def _command(case: Case, folder: Path) -> list[str]:
    source = PROGRAMS / case.program
    if case.program == "ingest.py":
        python = interpreter_of(KINDS[0])
        shutil.copy(extension(python, "scanner", PROGRAMS) / "scanner.so", folder)
        shutil.copy(source, folder)
        return [python, "-s", str(folder / case.program)]
    if case.program.endswith(".cpp"):
        built = folder / source.stem
        subprocess.run([tool("g++"), "-O1", "-g", str(source), "-o", str(built)], check=True, capture_output=True)
        return [str(built)]
    shutil.copy(source, folder)
    return [sys.executable, "-s", str(folder / case.program)]
