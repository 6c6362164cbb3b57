"""The pages are true: their sessions are run, the commands page is what the declarations say, links lead somewhere."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.scripts import script

from gdbheap.commands.surface.needs import CALLED, FOLLOWED, STARTED
from gdbheap.commands.surface.registry import COMMANDS

ROOT = Path(__file__).resolve().parent.parent
WORD = re.compile(r"(?<![0-9A-Za-z])[A-Za-z]{4,}(?![0-9A-Za-z])")
LINK = re.compile(r"\]\((?!https?:)([^)#]+)")


doc_sessions = script("doc_sessions")


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[Path, Any]]:
    """Return the pages, about programs that run until the end, with a home folder that all share: one of their sessions
    installs gdbheap there."""
    home = str(tmp_path_factory.mktemp("home"))
    with doc_sessions.Services() as services:
        yield {path: doc_sessions.Page(path, services, home) for path in doc_sessions.pages()}


@pytest.mark.parametrize(
    ("path", "place", "step"), [pytest.param(*each, id=f"{each[0].stem}-{each[1]}") for each in doc_sessions.sessions()]
)
def test_session(path: Path, place: int, step: Any, pages: dict[Path, Any]) -> None:
    """The command ends with status 0, and every word that the page shows of its output is in its output."""
    if step.command.startswith("gdb ") and shutil.which("gdb") is None:
        pytest.skip("no gdb")
    _, done, real = pages[path].done(place)
    assert done.status == 0, done.errors
    assert set(WORD.findall(step.output)) - set(WORD.findall(real)) == set(), real


def test_tutorial_shows_the_fix() -> None:
    """What the tutorial says to change is what differs between the two services."""
    text = (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")
    (found,) = doc_sessions.DIFFERENCE.finditer(text)
    assert found[0] == f"{found[1]}{doc_sessions.differences(found[2], found[3])}```"


def test_pages_show_sessions() -> None:
    """README.md shows the tool at work, in gdb and in a shell."""
    commands = [step.command for page, _, step in doc_sessions.sessions() if page.name == "README.md"]
    assert any(command.startswith("gdb -p ") for command in commands)
    assert any(command.startswith("gdbheap ") for command in commands)


def test_commands_page_is_what_the_declarations_say() -> None:
    """docs/commands.md was written by scripts/command_docs.py after the last change of a help text."""
    found = (ROOT / "docs" / "commands.md").read_text(encoding="utf-8")
    assert found == script("command_docs").page(), "run scripts/command_docs.py --write"


def test_readme_is_short_and_true() -> None:
    """README.md is a screen and a half; each command line that it shows is one, with options that the command has."""
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
    """Every link to another file of the repository names one that exists."""
    targets = LINK.findall(page.read_text(encoding="utf-8"))
    assert [target for target in targets if not (page.parent / target).exists()] == []


@pytest.mark.parametrize("page", [*doc_sessions.pages(), ROOT / "CHANGELOG.md"], ids=lambda page: page.name)
def test_no_merge_is_left_open(page: Path) -> None:
    """No page has both sides of a merge, nor a table of commands twice."""
    text = page.read_text(encoding="utf-8")
    assert not re.search(r"^(<<<<<<<|=======|>>>>>>>)", text, re.MULTILINE)
    assert text.count("| command | what it shows or does") <= 1


def test_commands_that_do_more_than_read() -> None:
    """One table has each command that calls, patches or starts something, and no other but those of its options."""
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
