"""Checks of the pages: their sessions are run, the commands page equals the declarations, and links exist."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.scripts import ROOT, script

from gdbheap.commands.surface.needs import CALLED, FOLLOWED, STARTED
from gdbheap.commands.surface.registry import COMMANDS

WORD = re.compile(r"(?<![0-9A-Za-z])[A-Za-z]{4,}(?![0-9A-Za-z])")
LINK = re.compile(r"\]\((?!https?:)([^)#]+)")


doc_sessions = script("doc_sessions")


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[Path, Any]]:
    """Yield the pages, with the programs that run until the end and one home folder for all: a session installs
    gdbheap there."""
    home = str(tmp_path_factory.mktemp("home"))
    with doc_sessions.Services() as services:
        yield {path: doc_sessions.Page(path, services, home) for path in doc_sessions.pages()}


@pytest.mark.parametrize(
    ("path", "place", "step"), [pytest.param(*each, id=f"{each[0].stem}-{each[1]}") for each in doc_sessions.sessions()]
)
def test_session(path: Path, place: int, step: Any, pages: dict[Path, Any]) -> None:
    """Check that the command ends with status 0 and that each word of the output on the page is in the real output."""
    if step.command.startswith("gdb ") and shutil.which("gdb") is None:
        pytest.skip("no gdb")
    if missing := doc_sessions.missing(pages[path].text):
        pytest.skip(f"no {missing[0]}")
    _, done, real = pages[path].done(place)
    assert done.status == 0, done.errors
    assert set(WORD.findall(step.output)) - set(WORD.findall(real + done.output)) == set(), real


@pytest.mark.parametrize("page", ["tutorial-python.md", "tutorial-cxx.md"])
def test_tutorial_shows_the_fix(page: str) -> None:
    """Check that the change that a tutorial describes is the difference between the two programs."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    (found,) = doc_sessions.DIFFERENCE.finditer(text)
    assert found[0] == f"{found[1]}{doc_sessions.differences(found[2], found[3])}```"


def test_tutorials_are_short() -> None:
    """Check that each tutorial has at most 80 lines, apart from the fix, and a section of links at its end."""
    found = sorted((ROOT / "docs").glob("tutorial-*.md"))
    assert len(found) == 7
    for page in found:
        text = page.read_text(encoding="utf-8")
        assert len(doc_sessions.DIFFERENCE.sub("", text).splitlines()) <= 80 and "\n## Next\n" in text, page.name


def test_pages_show_sessions() -> None:
    """Check that README.md shows sessions, in gdb and in a shell."""
    commands = [step.command for page, _, step in doc_sessions.sessions() if page.name == "README.md"]
    assert any(command.startswith("gdb -p ") for command in commands)
    assert any(command.startswith("gdbheap ") for command in commands)


def test_commands_page_is_what_the_declarations_say() -> None:
    """Check that scripts/command_docs.py wrote docs/commands.md after the last change of a help text."""
    found = (ROOT / "docs" / "commands.md").read_text(encoding="utf-8")
    assert found == script("command_docs").page(), "run scripts/command_docs.py --write"


def test_readme_is_short_and_true() -> None:
    """Check that README.md has at most a screen and a half, and that each command line in it exists with its
    options."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(text.encode()) <= 6_000
    lines = re.findall(r"`gdbheap ((?:[^`]| )+)`", text)
    found = [line.split(", ")[0].split() for line in lines]
    assert len(found) >= 10
    for words in found:
        noun = next((word for word in words if word in COMMANDS), "")
        own = {option.name for option in COMMANDS[noun].all_options} | {"--children", "--cgroup", "--version"}
        assert words[0] == noun or words[0] in ("PID", "install") or words[0].startswith("--"), words
        assert {word.partition("=")[0] for word in words if word.startswith("--")} <= own, words


@pytest.mark.parametrize("page", doc_sessions.pages(), ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    """Check that every link to another file of the repository names a file that exists."""
    targets = LINK.findall(page.read_text(encoding="utf-8"))
    assert [target for target in targets if not (page.parent / target).exists()] == []


@pytest.mark.parametrize("page", [*doc_sessions.pages(), ROOT / "CHANGELOG.md"], ids=lambda page: page.name)
def test_no_merge_is_left_open(page: Path) -> None:
    """Check that no page has the marks of an open merge, or a table of commands twice."""
    text = page.read_text(encoding="utf-8")
    assert not re.search(r"^(<<<<<<<|=======|>>>>>>>)", text, re.MULTILINE)
    assert text.count("| command | what it shows or does") <= 1


def test_commands_that_do_more_than_read() -> None:
    """Check that one table has exactly the commands that call, patch or start something, and their options."""
    text = (ROOT / "docs" / "safety.md").read_text(encoding="utf-8")
    section = text.split("## Commands that do more than read\n")[1].split("\n## ")[0]
    first_cells = [line.split("|")[1] for line in section.splitlines() if line.startswith("| ")][2:]
    named = {noun for cell in first_cells for noun in re.findall(r"`(?:heap|gdbheap) ([a-z-]+)", cell)}
    changing = (FOLLOWED, CALLED, STARTED)
    acting = {noun for noun, command in COMMANDS.items() if command.call or command.needs in changing}
    assert named == acting | {"watch"}
    assert any("--clone" in cell for cell in first_cells)
    for option in ("--core", "--on-memory-error"):
        assert any(option in cell for cell in first_cells) and option in {o.name for o in COMMANDS["watch"].all_options}
