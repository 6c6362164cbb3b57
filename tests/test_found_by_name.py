"""Each part is found by its name: a command's words by the command, and each file and each class has one meaning.

Only the sources are read. Each exception has a reason and must still be needed.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Collection, Mapping
from pathlib import Path

import pytest
from support.sources import modules

WORDS = "report.words."
# Commands whose words are in a file of another name, or in none.
OTHER_WORDS = {
    "heap": ("ledger", "the command without a name prints the ledger, which pages and snapshots show too"),
    "report": ("", "prints the path of the page that it wrote"),
    "session": ("", "the commands that are typed in it print their own words"),
}
# The files that each folder of a family has: a folder is an allocator, or a finding.
FAMILIES = {
    "allocators.": {"allocator", "locate", "running"},
    "findings.": {"rule", "words"},
}
# Commands, their words and their pages are named after answers; the library's records are named after the answers' own.
NAMED_AFTER_ANSWERS = re.compile(r"commands\.\w+|report\.(words|page)\.\w+")
LIBRARY = re.compile(r"api\.\w+")
# Findings that are made from the holders of the first page, and from a series of samples.
FOUND_ELSEWHERE = {"growing", "holder"}
SAME_FILES = {
    "arenas": "the arenas of glibc, and the answer about them",
    "arrow": "the tables of Arrow, in a process and in a file",
    "blocks": "blocks of an allocator: their graph, and those of snapshots",
    "content": "a kind of contents: the protocol, and Python's own",
    "contexts": "the memory contexts of PostgreSQL, and the answer about them",
    "declaration": "what help and documents are made from: of a command, and of the exported tables",
    "distribution": "allocation calls by size",
    "exit_status": "the exit status of a program",
    "heap": "the memory of one target, and the library's view of it",
    "help": "the help of commands: how it is made, and its texts in gdb and in the shell",
    "mappings": "the mappings of a target, and the answer about them",
    "opening": "opening what a user named",
    "paths": "paths through a graph of references",
    "pools": "the pools of pymalloc, and the answer about them",
    "programs": "the program that a process runs",
    "refusing": "the message about what the user asked for and gdbheap refuses",
    "registry": "the list of all of one kind: allocators, contents, commands",
    "roots": "the roots of a graph of references",
    "stored": "what anybody may have written into a stored file",
    "threads": "the threads of a target that run Python, and the answer about them",
    "thresholds": "malloc's thresholds",
    "trim": "what malloc_trim() would return, and the answer about it",
    "unfinished": "what a graph leaves out that was cut",
}
SAME_CLASSES = {
    "Column": "a column of a table, on a page and in a terminal",
    "Options": "the options of a command",
    "Owner": "the object that owns a block",
    "Rss": "resident and swapped bytes, with their source and without",
    "Tally": "a number of blocks, and their bytes",
}


def words_of(text: str) -> set[str] | None:
    """Return the files of words that a command imports; None if it prints no words of its own."""
    tree = ast.parse(text)
    modules_named = [node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    found = {name.rpartition(".")[2] for name in modules_named if name.startswith(f"gdbheap.{WORDS}")}
    renders = any(isinstance(node, ast.keyword) and node.arg == "render" for node in ast.walk(tree))
    return found if renders or found else None


def without_words(commands: Mapping[str, str], files: Collection[str]) -> dict[str, set[str]]:
    """Return the commands that print words, but whose file of words is absent or not imported, with what they import.

    ``commands``: the sources by name; ``files``: the names of the files of words.
    """
    found = {name: words_of(text) for name, text in commands.items()}
    return {name: words for name, words in found.items() if words is not None and name not in words & set(files)}


def is_of_family(name: str) -> bool:
    """Return whether a module is the file of a family's folder that each of its folders may have."""
    room = next((room for room in FAMILIES if name.startswith(room)), "")
    return bool(room) and name.count(".") == room.count(".") + 1 and name.rpartition(".")[2] in FAMILIES[room]


def repeated(found: Mapping[str, list[str]], allowed: re.Pattern[str]) -> dict[str, list[str]]:
    """Return the names of several modules, without the modules whose whole names match `allowed`."""
    left = {name: [one for one in places if not allowed.fullmatch(one)] for name, places in found.items()}
    return {name: places for name, places in left.items() if len(places) > 1}


def test_the_words_of_a_command_have_its_name() -> None:
    """Check that the words of each command are in ``report/words/`` under the command's name."""
    sources = modules()
    commands = {
        path.stem: path.read_text(encoding="utf-8")
        for name, path in sources.items()
        if name.startswith("commands.") and name.count(".") == 1 and path.stem != "__init__"
    }
    files = {name.removeprefix(WORDS) for name in sources if name.startswith(WORDS)}
    wrong = without_words(commands, files)
    assert set(wrong) == set(OTHER_WORDS)
    assert {
        name: file for name, (file, _reason) in OTHER_WORDS.items() if file and file not in wrong[name] & files
    } == {}


@pytest.mark.parametrize(
    ("text", "files", "wrong"),
    [
        ("from gdbheap.report.words.holes import render", {"holes"}, False),
        ("from gdbheap.report.words.holes import render", {"graph"}, True),
        ("def f():\n    from gdbheap.report.words.graph import render_holes", {"graph", "holes"}, True),
        ("COMMAND = Command(noun='holes', render=lambda shown: '')", {"holes"}, True),
        ("from gdbheap.report.text.numbers import parse_size", set(), False),
    ],
)
def test_missing_words_are_found(text: str, files: set[str], wrong: bool) -> None:
    """Check that a command is found whose words are in a file of another name, in no file, or in the command itself."""
    assert set(without_words({"holes": text}, files)) == ({"holes"} if wrong else set())


def listed(path: Path, name: str) -> set[str]:
    """Return the names in the tuple that a source assigns to `name`; those before a dot."""
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.AnnAssign):
            target, value = node.target, node.value
        elif isinstance(node, ast.Assign):
            target, value = node.targets[0], node.value
        else:
            continue
        if isinstance(target, ast.Name) and target.id == name and value is not None:
            return {one.id for one in ast.walk(value) if isinstance(one, ast.Name)}
    return set()


def test_each_finding_has_a_rule_with_words() -> None:
    """Check that each folder of findings has its rule and its words, and that the list of rules names it."""
    sources = modules()
    parts = [name.split(".")[1:] for name in sources if name.startswith("findings.") and name.count(".") == 2]
    folders = {folder for folder, _file in parts}
    for file in ("rule", "words"):
        assert {folder for folder, name in parts if name == file} == folders, file
    rules = listed(sources["findings.registry"], "RULES")
    assert folders - rules == FOUND_ELSEWHERE


def test_a_file_name_has_one_meaning() -> None:
    """Check that files of one name in several rooms are about the same thing."""
    found = defaultdict(list)
    for name in modules():
        if not name.endswith("__init__") and not is_of_family(name):
            found[name.rpartition(".")[2]].append(name)
    assert set(repeated(found, NAMED_AFTER_ANSWERS)) == set(SAME_FILES)


def test_a_class_name_has_one_meaning() -> None:
    """Check that public classes of one name in several files are about the same thing."""
    found = defaultdict(list)
    for name, path in modules().items():
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found[node.name].append(name)
    assert set(repeated(found, LIBRARY)) == set(SAME_CLASSES)


def test_a_second_meaning_is_found() -> None:
    """Check that a name in two rooms is found, and that the report's and the families' files are left out."""
    found = {"holes": ["answers.holes", "report.words.holes"], "facts": ["layout.facts", "refusals.facts"]}
    assert set(repeated(found, NAMED_AFTER_ANSWERS)) == {"facts"}
    assert [is_of_family(name) for name in ("findings.cycles.rule", "findings.rule", "targets.running")] == [
        True, False, False,
    ]  # fmt: skip
