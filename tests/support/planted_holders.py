"""Run tests/programs/planted_holders.py, and read from each answer which holder has the most memory."""

from __future__ import annotations

import contextlib
import functools
import json
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from gdbheap.answers.dominator_tree import dominator_tree
from gdbheap.answers.owners import owners
from gdbheap.answers.retained import OBJECT, retained
from gdbheap.answers.why import why
from gdbheap.first_page.ledger import ledger
from gdbheap.first_page.main_holders import BUDGET
from gdbheap.heap import Heap
from gdbheap.report.formats.trees import retained_tree
from gdbheap.report.page.contents import owners_section, retained_section
from gdbheap.report.words.diff import owner_text
from gdbheap.report.words.findings import text_of
from gdbheap.report.words.retained import held_at
from gdbheap.snapshots.difference import difference
from gdbheap.snapshots.overview import Outcome
from gdbheap.snapshots.snapshot import SnapshotWithBlocks, take
from support.library import heap_of
from support.programs import SOURCES, running

MODULE_VARIABLES = (
    "module_dict", "module_list", "module_set", "module_deque", "module_ordered_dict", "module_defaultdict",
    "module_subclass", "module_bytes", "module_queue", "dict_of_dicts", "nested_twice", "linked_list",
    "binary_tree", "folders", "closures",
)  # fmt: skip
ATTRIBUTES = ("class_attribute", "instance_attribute", "slot", "closure", "default_argument")
CACHES = ("cached_function", "cached_method", "thread_local", "context_variable", "weakref_callback")
FRAMES = ("frame_local", "generator_local", "kept_traceback", "asyncio_task")
OTHERS = ("memory_view", "many_variables", "mapped_memory", "modules_of_one_file")
EXTENSIONS = ("extension_object", "extension_static")
SHAPES = (*MODULE_VARIABLES, *ATTRIBUTES, *CACHES, *FRAMES, *OTHERS, *EXTENSIONS)
OF_PACKAGES = {"numpy_array": "numpy", "numpy_over_bytes": "numpy", "arrow_array": "pyarrow", "polars_frame": "polars"}
# The number of rows among which a page must name the holder.
ROWS = 20
# The findings about one holder; shared memory is said first of the mapping.
ABOUT_HOLDERS = ("holder", "shared-memory")
_INCLUDE = "import sysconfig; print(sysconfig.get_config_var('INCLUDEPY'))"
_built = tempfile.TemporaryDirectory(prefix="gdbheap-planted-")
_CELL = re.compile(r'<td(?: class="n" data-v="(\d*)")?>(.*?)</td>')


@dataclass(frozen=True)
class Truth:
    """What the program planted: a word of the holder's name, the holder's bytes, and the address of one block."""

    word: str
    bytes: int
    item: int


@dataclass(frozen=True)
class Named:
    """The first holder that an answer names, and its bytes; None if it has no bytes."""

    answer: str
    name: str
    bytes: int | None


@contextlib.contextmanager
def planted(
    python: str, shape: str, seed: int, folder: Path, environment: dict[str, str] | None = None
) -> Iterator[tuple[Heap, SnapshotWithBlocks, Truth]]:
    """Yield the heap of a program after it planted memory, a snapshot from before, and the truth. Skip the test if the
    release lacks the shape.
    """
    truth = folder / "truth"
    command = [python, "-s", str(SOURCES / "planted_holders.py"), shape, str(seed), str(truth)]
    more = {"PYTHONPATH": str(extension(python))} if shape in EXTENSIONS else {}
    with running(command, folder, {**more, **(environment or {})}) as target:
        with heap_of(str(target.pid)) as heap:
            before = take(heap)
        target.go_on()
        target.rest_wholly()
        found = json.loads(truth.read_text())
        if not found:
            pytest.skip("this release lacks the shape")
        with heap_of(str(target.pid)) as heap:
            yield heap, before, Truth(**found)


@functools.cache
def extension(python: str, name: str = "planted_extension", sources: Path = SOURCES) -> Path:
    """Return the folder of NAME.c, built for a Python; skip the test if the build fails."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    asked = subprocess.run([python, "-c", _INCLUDE], capture_output=True, text=True, check=True)
    headers = Path(asked.stdout.strip())
    if compiler is None or not (headers / "Python.h").exists():
        pytest.skip("no C compiler, or no Python.h of this interpreter")
    folder = Path(tempfile.mkdtemp(dir=_built.name))
    flags = ["-O1", "-Wall", "-Werror", "-Wno-cast-function-type", "-shared", "-fPIC", f"-I{headers}"]
    source, library = sources / f"{name}.c", folder / f"{name}.so"
    subprocess.run([compiler, *flags, str(source), "-o", str(library)], check=True)
    return folder


def named(heap: Heap, before: SnapshotWithBlocks, truth: Truth) -> Iterator[Named]:
    """Yield the first holder that each answer names."""
    holders, kept = owners(heap, None, ROWS), retained(heap, OBJECT, ROWS)
    yield Named("owners", holders.groups[0].root or "", holders.groups[0].bytes)
    yield Named("retained", held_at(kept.rows[0]), kept.rows[0].retained)
    first = ledger(heap, budget=BUDGET)
    yield Named("the first page", first.holders[0].path, first.holders[0].bytes)
    (finding,) = [finding for finding in first.findings if finding.id in ABOUT_HOLDERS]
    yield Named("its finding", text_of(finding), None)
    found = why(heap, truth.item)
    yield Named("why", found.expression or " ".join(step.edge for step in found.rows), None)
    yield _first_row("report, owners", owners_section(Outcome(holders), ROWS).body, 0, 1)
    yield _first_row("report, retained", retained_section(Outcome(kept), ROWS).body, 5, 4)
    change = difference([before, take(heap)]).owners[0]
    yield Named("diff", owner_text(change), change.retained)
    yield _in_tree(heap, truth.word)


def _first_row(answer: str, page: str, name: int, size: int) -> Named:
    """Return name and size from the first row of a page."""
    cells = _CELL.findall(page[page.index("<tbody>") :])
    return Named(answer, cells[name][1], int(cells[size][0]))


def _in_tree(heap: Heap, word: str) -> Named:
    """Return the frames of the picture with the word in their names."""
    rows = [([frame.name for frame in frames], size) for frames, size, _count in retained_tree(dominator_tree(heap))]
    on = [(names, size) for names, size in rows if any(word in name for name in names)]
    return Named("retained --svg", " ".join(max(on, key=lambda row: row[1])[0]) if on else "", sum(s for _n, s in on))
