"""No code outside an allocator's own folder names an allocator, except where the question is about this allocator.

Only the sources are read. Docstrings and comments may name allocators. Each exception has a reason and must still be
needed.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.sources import BINDING, CORE, ROOT, modules, without_tests

# An allocator has the name of its folder.
NAMES = sorted(name.split(".")[1] for name in modules() if re.fullmatch(r"allocators\.\w+\.__init__", name))
NAMED = re.compile("|".join(NAMES), re.IGNORECASE)
OWN = ("allocators.", "layout.")
MALLOC = "glibc's malloc is the one that is asked, tuned or called"
TEXT = "the command's help names what it shows of each"
OWN_RULE = "a rule about one allocator, with its advice"
OTHERS = "with which allocator, and which settings of it, recorded calls are run again"
ALLOWED = {
    "api.inside": "a copy of the program makes no call of glibc's", "findings.stored": "settings that a file may name",
    "answers.arenas": MALLOC, "answers.aborted": "an abort is glibc's",
    "answers.accounting.records": "a snapshot's target has glibc's version", "answers.chunks": MALLOC,
    "answers.fit": MALLOC, "answers.sizes": MALLOC,
    "answers.trim": MALLOC, "first_page.check_advice": MALLOC, "commands.inferior_calls.inferior_call": MALLOC,
    "commands.inferior_calls.malloc_stats_call": MALLOC, "commands.inferior_calls.native_caller": MALLOC,
    "answers.sampled_stacks": "only jemalloc samples its own calls", "report.words.sampled_stacks": "the same",
    "answers.duplicates": "each interpreter has arenas of its own",
    "answers.pools": "size classes of Python's allocators", "report.words.pools": "the same",
    "report.words.mimalloc": "the same",
    "tracing.arena_growths": "whose arenas grow",
    "commands.replay": OTHERS, "tracing.replay_settings": OTHERS, "tracing.what_if": OTHERS,
    "report.words.replay": OTHERS,
    "sampling.sampled_process": "what each can be read of while the process runs",
    "findings.finding": "what the rules about one allocator share",
    **dict.fromkeys((f"findings.{name}" for name in ("registry", "settings", "settlement", "thresholds",)), OWN_RULE),
    **dict.fromkeys((f"findings.{name}.rule" for name in (
        "fragmented", "free_chunks", "growing_buffers", "huge_pages", "jemalloc_arenas",
        "jemalloc_unused", "large_chunks", "locked", "main_top", "mappings", "mimalloc_empty",
        "musl_mappings", "pinned_pages", "pymalloc_arenas", "sparse_huge_pages", "tcmalloc_unused",
        "thread_tops",
    )), OWN_RULE),
    **dict.fromkeys((f"findings.{name}.words" for name in (
        "large_chunks", "free_lists", "main_top",
        "cached", "fragmented", "sparse_huge_pages", "huge_pages", "jemalloc_arenas", "jemalloc_unused",
        "mimalloc_empty", "musl_mappings", "pinned_pages", "pymalloc_arenas", "tcmalloc_unused",
    )), OWN_RULE),
    "remarks": "an allocator may have remarks of its own", "report.words.remarks": "the same",
    "report.words.keys": "what a key means may be about one allocator",
    "first_page.next_lines": "settings of glibc's malloc alone are tried by a replay",
    "report.words.check": "pages and arenas, in the words of the allocator that was checked",
    "report.words.check_advice": "where a setting comes from",
    **dict.fromkeys((
        "commands.export", "export.declaration", "export.gathered", "export.partitions",
    ), "the release of the C library is a column of a look, and the arenas of its malloc are a table"),
    "contents.python.running.interpreter": "the evidence by which it was found",
    **dict.fromkeys((f"commands.{name}" for name in (
        "arenas", "check", "info", "chunks", "heap_map", "pins", "pools", "trace", "trim",
    )), TEXT),
}  # fmt: skip
# Exceptions in the core: the enum of stores, and the few places that match on it.
RUST = {"allocators/mod.rs", "allocators/groups.rs", "allocators/holders.rs", "allocators/sample.rs",
        "allocators/store.rs", "allocators/walk.rs", "python/chunk_objects.rs",
        "structures/chunk_kinds.rs"}  # fmt: skip
RUST_OWN = tuple(f"allocators/{name}/" for name in NAMES)
COMMENT = re.compile("//.*")


def words_of(source: str) -> Iterator[str]:
    """Yield the names and literal texts of Python sources, without docstrings."""
    tree = ast.parse(source)
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef)
    first = [node.body[0] for node in ast.walk(tree) if isinstance(node, documented) and node.body]
    docstrings = {id(node.value) for node in first if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            yield node.value
        yield from (value for field in ("id", "attr", "arg", "module", "name") if (value := getattr(node, field, None)))


def names_one(path: Path) -> bool:
    """Return whether the code of a module names an allocator."""
    words = words_of(path.read_text(encoding="utf-8"))
    return any(isinstance(word, str) and NAMED.search(word) for word in words)


def test_python_names_none() -> None:
    """Check that only the modules in the list of exceptions name an allocator, and that each of these does."""
    others = {name: path for name, path in modules().items() if not name.startswith(OWN)}
    assert {name for name, path in others.items() if names_one(path)} == set(ALLOWED)


def test_the_core_names_none() -> None:
    """Check that only the allocators' folders, and the places that choose between them, name allocators."""
    found = set()
    for path in CORE.rglob("*.rs"):
        place = str(path.relative_to(CORE))
        code = COMMENT.sub("", without_tests(path.read_text(encoding="utf-8")))
        if NAMED.search(code) and not place.startswith(RUST_OWN):
            found.add(place)
    assert found == RUST


@pytest.mark.parametrize("crate", ["access", "calls", "plan"])
def test_other_crates_name_none(crate: str) -> None:
    """Check that no allocator is named in the crates that know nothing about blocks."""
    sources = {path: path.read_text(encoding="utf-8") for path in (ROOT / "native" / crate / "src").rglob("*.rs")}
    assert [path for path, text in sources.items() if NAMED.search(COMMENT.sub("", without_tests(text)))] == []


def test_the_binding_is_of_the_same_parts() -> None:
    """Check the files of the binding: the allocators' own, those that list the stores, and the shared records."""
    named = {
        path.name
        for path in BINDING.glob("*.rs")
        if NAMED.search(COMMENT.sub("", without_tests(path.read_text(encoding="utf-8"))))
    }
    assert named <= {
        "glibc.rs",
        "jemalloc.rs",
        "tcmalloc.rs",
        "pymalloc.rs",
        "mimalloc.rs",
        "mallocng.rs",
        "oldmalloc.rs",
        "heaps.rs",
        "lib.rs",
        "rows.rs",
        "memory.rs",
        "objects.rs",
        "structures.rs",
    }


def test_a_name_is_found() -> None:
    """Check that a use, an import and a text count as a name, and that a docstring does not."""
    assert {"glibc", "jemalloc", "mallocng", "mimalloc", "oldmalloc", "pymalloc", "tcmalloc"} <= set(NAMES)
    assert not [word for word in words_of('"""Of glibc."""\nX = 1') if NAMED.search(word)]
    for source in ("X = glibc", "from a.pymalloc import b", "X = 'mimalloc'", "def f(glibc): pass"):
        assert [word for word in words_of(source) if NAMED.search(word)], source
