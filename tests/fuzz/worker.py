"""Runs commands on one mutant after another: ``worker.py FOLDER SECONDS``, a JSON line in, a JSON line out.

In: {"core", "seed", "only" (a noun or null)}. Out: {"mutations", "faults": [[noun, what]],
"slowest": [seconds, noun], "answered"}. A mutant that takes more than SECONDS of
processor time ends the process by SIGPROF, after the stacks of all threads were written to standard error; so does a
crash.
"""

from __future__ import annotations

import faulthandler
import json
import random
import resource
import signal
import sys
import time
import traceback
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
# The installed package is tested: not the folder of this file, nor the one above the tests.
sys.path[:] = [str(HERE.parent), *(entry for entry in sys.path if Path(entry or ".").resolve() != HERE)]

from support.nouns import ADDRESSED, COMPARING, FOLLOWING, LIVE_ONLY, SHELL_ONLY, WRITING  # noqa: E402

from fuzz.books import unbalanced  # noqa: E402
from fuzz.cores import LAID_OUT  # noqa: E402
from fuzz.mutations import OF_FILE, Base, mutant  # noqa: E402
from gdbheap.allocators.mimalloc.segments import Mimalloc  # noqa: E402
from gdbheap.commands.surface.parser import parse  # noqa: E402
from gdbheap.commands.surface.registry import COMMANDS  # noqa: E402
from gdbheap.commands.surface.session import ask, present, status_of  # noqa: E402
from gdbheap.documents import parsed  # noqa: E402
from gdbheap.errors import GdbheapError  # noqa: E402
from gdbheap.heap import Heap  # noqa: E402
from gdbheap.layout.facts import Facts  # noqa: E402
from gdbheap.report.text.style import style_for  # noqa: E402
from gdbheap.snapshots.difference import difference  # noqa: E402
from gdbheap.snapshots.file import read  # noqa: E402
from gdbheap.targets.core import Core  # noqa: E402

ADDRESS_SPACE = 3 << 30
# 5: the largest part could not be examined.
ANSWERED = (0, 1, 5)
# Statuses of a walk of a damaged core, and of a file with damaged headers.
REFUSED, NO_CORE = (1, 5), (1, 2, 4, 5)
# Additional options for each noun that does more with some.
WORDS: dict[str, tuple[tuple[str, ...], ...]] = {
    "": ((), ("--detail",)),
    "arenas": ((), ("--detail",)),
    "holes": (("--min=1",), ("--min=64K", "--fit=100K")),
    "pins": (("--top=50",),),
    "chunks": (("--top=all",), ("--state=free", "--min=1K")),
    "pools": ((), ("--detail",)),
    "pyobjects": (
        (), ("--buffers",), ("--list", "--type=dict"), ("--list", "--type=*", "--top=40"), ("--by=size",),
        ("--by=length",), ("--by=module",), ("--by=value", "--top=40"), ("--by=fill",), ("--by=line",),
        ("--type=*", "--group=name"),
    ),
    "tasks": ((), ("--list",)),
    "duplicates": (("--top=40",), ("--top=3", "--holders")),
    "map": ((), ("--cell=64K",), ("--svg=/dev/null",)),
    "at": ((), ("--path",)),
    # A path from a root is described for each row.
    "retained": (("--top=10",), ("--by=type", "--top=10")),
}  # fmt: skip
# At most this many commands are asked of one mutant.
ASKED = 10


def style() -> Any:
    """Return the style of rendered tables."""
    return style_for(sys.stdout, False, None, False)


class Mutant:
    """One damaged core; ``faults`` are (noun, what)."""

    def __init__(self, base: Base, seed: str, path: Path) -> None:
        """Damage the core and write it to ``path``."""
        self.rng = random.Random(seed)
        data, self.mutations = mutant(base, self.rng)
        base.save(data, path)
        self.path, self.base = path, base
        self.is_core = not any(one.__name__ in self.mutations for one in OF_FILE)
        self.faults: list[tuple[str, str]] = []
        self.slowest = (0.0, "")
        self.answered = 0

    def run(self, only: str | None) -> None:
        """Ask all questions, in random order, about one Heap that stays open, as in gdb."""
        nouns = [noun for noun in COMMANDS if noun not in (*LIVE_ONLY, *COMPARING, *FOLLOWING, *SHELL_ONLY)]
        if self.base.path.name.startswith(LAID_OUT):
            self._guarded("mimalloc", self._laid_out)
        heap = self._open()
        if heap is None:
            return
        for noun in self.rng.sample(nouns, ASKED):
            words, started = self._words(noun), time.monotonic()
            if only is None or noun == only:
                self._guarded(f"{noun} {' '.join(words)}", lambda noun=noun, words=words: self._ask(heap, noun, words))
            self.slowest = max(self.slowest, (time.monotonic() - started, noun))

    def _laid_out(self) -> None:
        """Check mimalloc in an image, which has no interpreter to find it by."""
        core = Core(str(self.path))
        found = Mimalloc(core, Facts())
        holes = found.blocks.holes(1)
        assert all(hole.start < hole.end for hole in holes)
        assert found.blocks.heaps() is not None and found.blocks.classes() is not None
        for segment in found.segments[:50]:
            found.blocks.find(core.space, self.rng.randrange(segment.start, segment.end))

    def _open(self) -> Heap | None:
        opened: list[Heap] = []
        self._guarded("open", lambda: opened.append(Heap(Core(str(self.path)))))
        return opened[0] if opened else None

    def _words(self, noun: str) -> list[str]:
        words = list(self.rng.choice(WORDS.get(noun, ((),))))
        if noun in WRITING:
            return [*words, f"{self.path}.heap", *self.rng.choice(([], ["--blocks"]))]
        if noun not in ADDRESSED:
            return words
        place = self.rng.choice(self.base.pointers) if self.rng.random() < 0.8 else self.base.place(self.rng)
        value = int.from_bytes(self.base.data[place : place + 8], "little")
        return [*words, hex(value if self.rng.random() < 0.8 else self.base.address(place))]

    def _guarded(self, what: str, do: Any) -> None:
        """Run ``do``. A line that says what is wrong counts as an answer, anything else as a fault."""
        try:
            do()
        except GdbheapError as error:
            allowed = REFUSED if self.is_core else NO_CORE
            if error.status not in allowed and what.split(" ")[0] not in ADDRESSED:
                self.faults.append((what, f"status {error.status}: {error}"))
            if not str(error) or len(str(error).splitlines()) != 1:
                self.faults.append((what, f"not one line: {error!r}"))
        except BaseException:
            self.faults.append((what, traceback.format_exc()[-3000:]))

    def _ask(self, heap: Heap, noun: str, words: list[str]) -> None:
        command = COMMANDS[noun]
        options, _, left = parse(command, [*words, "--top=all", "--json"])
        if noun in WRITING:
            options.file = left[0]
        elif left:
            options.address = int(left[0], 16)
        answered = ask(command, heap, options)
        if noun in WRITING:
            look = read(left[0])
            assert not any(row.resident or row.virtual for row in difference([look, look]).ledger)
        # It refuses numbers that no snapshot may have.
        answer = parsed(present(answered, style()))
        if status_of(answered) not in ANSWERED:
            self.faults.append((noun, f"status {status_of(answered)}"))
        span = sum(end - start for start, end in heap.target.mappings.ranges())
        self.faults += [(noun, f"books: {wrong}") for wrong in unbalanced(noun, answer, span)]
        options.json = False
        present(answered, style())
        self.answered += 1


def main() -> None:
    """Serve until standard input ends."""
    folder, seconds = Path(sys.argv[1]), float(sys.argv[2])
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE, ADDRESS_SPACE))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    faulthandler.enable()
    faulthandler.register(signal.SIGPROF, chain=True)
    bases: dict[str, Base] = {}
    for line in sys.stdin:
        task = json.loads(line)
        if task["core"] not in bases:
            bases[task["core"]] = Base(Path(task["core"]))
        base = bases[task["core"]]
        signal.setitimer(signal.ITIMER_PROF, seconds)
        one = Mutant(base, task["seed"], folder / "core")
        one.run(task["only"])
        signal.setitimer(signal.ITIMER_PROF, 0)
        told = {"mutations": one.mutations, "faults": one.faults, "slowest": one.slowest, "answered": one.answered}
        print(json.dumps(told), flush=True)


if __name__ == "__main__":
    main()
