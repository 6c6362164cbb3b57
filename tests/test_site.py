"""The site that ``make site`` builds, checked without its tools: its pages, and that each link has a target."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from support.scripts import ROOT, script

import gdbheap
from gdbheap.commands.surface.help import anchor, help_of_its_own
from gdbheap.commands.surface.registry import COMMANDS

command_docs = script("command_docs")
library_docs = script("library_docs")
site_pages = script("site_pages")
site_check = script("site_check")
HEADING = re.compile(r"^#{1,4} (.+)$", re.MULTILINE)
FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def staged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder with the sources of the site."""
    folder: Path = tmp_path_factory.mktemp("site") / "sources"
    site_pages.stage(folder)
    return folder


def test_every_page_is_in_its_order() -> None:
    """Check that each page of docs/ is in docs/site/nav.txt exactly once, with the additional ones, and nothing
    else."""
    listed = [page for _, pages in site_pages.navigation() for page in pages]
    wanted = {path.stem for path in (ROOT / "docs").glob("*.md")} | {Path(name).stem for name in site_pages.OTHERS}
    assert sorted(listed) == sorted({*wanted, library_docs.TITLE})


def test_the_reference_has_every_name(staged: Path) -> None:
    """Check each public name of the library, with its docstring, and each question of a heap."""
    text = (staged / f"{library_docs.TITLE}.md").read_text(encoding="utf-8")
    for name in set(gdbheap.__all__) - {"__version__"}:
        assert f"\n## {name}\n" in text, name
    for name in ("holders", "blocks", "save", "rss", "close"):
        assert f"**`.{name}" in text, name


def test_every_command_has_its_page(staged: Path) -> None:
    """Check that each command has a page with its whole help, and a link to it from the page of all commands."""
    all_of_them = (staged / "commands.md").read_text(encoding="utf-8")
    assert len(list((staged / "commands").iterdir())) == len(COMMANDS) > 40
    for command in COMMANDS.values():
        name = anchor(command)
        text = (staged / "commands" / f"{name}.md").read_text(encoding="utf-8")
        assert text.startswith(f"# {command.name}\n") and help_of_its_own(command) in text
        assert f"](commands/{name}.md)" in all_of_them and f"\ncommands/{name}\n" in all_of_them


def test_commands_show_their_sessions(staged: Path) -> None:
    """Check that sessions about one command on other pages are also on the command's own page, whole or cut. Two
    commands have none: PostgreSQL is not on every machine, and a service at rest makes no calls.
    """
    for noun in COMMANDS.keys() - {"contexts", "catch", "shell", "calls"}:
        text = (staged / "commands" / f"{anchor(COMMANDS[noun])}.md").read_text(encoding="utf-8")
        typed = re.findall(r"^```text\n\$ (.*)$", text, re.MULTILINE)
        assert typed and all(f"{line} ".startswith(f"gdbheap {noun}".strip() + " ") for line in typed), (noun, typed)
    nouns = {
        "gdbheap 1234": "", "gdbheap why 1 0x2": "why", "gdbheap x 1": None, "ls": None, "gdbheap stats 1": "stats",
        "gdbheap calls calls.log": "calls", r"printf 'pins\n' | gdbheap shell 1": "shell",
    }  # fmt: skip
    assert {line: site_pages.noun_of(line) for line in nouns} == nouns
    for noun in ("shell", "calls"):
        text = (staged / "commands" / f"{anchor(COMMANDS[noun])}.md").read_text(encoding="utf-8")
        assert re.search(r"^```text\n\$ ", text, re.MULTILINE)


def places(text: str) -> set[str]:
    """Return the anchors that GitHub and the site give to a page's headings."""
    found: list[str] = []
    for title in HEADING.findall(FENCED.sub("", text)):
        plain = re.sub(r"[^\w\- ]", "", re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title).lower()).replace(" ", "-")
        found.append(f"{plain}-{found.count(plain)}" if plain in found else plain)
    return set(found)


def test_every_link_leads_somewhere(staged: Path) -> None:
    """Check that each link leads to a page and a heading of it, or to a file of the site."""
    pages = {path.resolve(): path.read_text(encoding="utf-8") for path in staged.rglob("*.md")}
    dead, count = [], 0
    for path, text in pages.items():
        for link in re.findall(r"\]\((?!https?:)([^)\s]+)\)", re.sub(r"`[^`\n]*`", "", FENCED.sub("", text))):
            target, _, place = link.removeprefix(f"{site_pages.FILE}:").partition("#")
            count += 1
            if link.startswith(site_pages.FILE):
                there = staged / "_extra" / os.path.relpath((path.parent / target).resolve(), staged.resolve())
                dead += [] if there.is_file() else [(path.name, link)]
                continue
            if target.startswith("_static/"):
                dead += [] if (path.parent / target).is_file() else [(path.name, link)]
                continue
            found = pages.get((path.parent / target).resolve() if target else path)
            dead += [(path.name, link)] if found is None or (place and place not in places(found)) else []
    assert dead == [] and count > 200


def test_a_built_site_is_looked_at(tmp_path: Path) -> None:
    """Check that each kind of fault in a built site is found, and nothing else."""
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "b.html").write_text('<h1 id="there">b</h1><a href="../a.html">a</a><a href="#there">x</a>')
    sound = '<link rel="stylesheet" href="s.css"><a href="sub/b.html#there">b</a><a href="https://example.org">x</a>'
    (tmp_path / "a.html").write_text(sound)
    (tmp_path / "s.css").write_text("a { background: url(data:image/png;base64,xx) } /* https://example.org */")
    assert list(site_check.wrong(tmp_path)) == []
    (tmp_path / "a.html").write_text(f'{sound}<a href="sub/c.html">c</a><a href="sub/b.html#where">b</a>')
    (tmp_path / "c.html").write_text('<script src="https://example.org/x.js"></script><img src="//example.org/x.png">')
    (tmp_path / "s.css").write_text("@import '//example.org/font.css'; a { src: url('https://example.org/font') }")
    found = list(site_check.wrong(tmp_path))
    assert len(found) == 6, found
    assert [line.split()[0] for line in found] == ["a.html", "a.html", "c.html", "c.html", "s.css", "s.css"]


def test_tools_are_pinned() -> None:
    """Check that each tool of the site has a version in the list."""
    lines = (ROOT / "docs" / "site" / "requirements.txt").read_text(encoding="utf-8").splitlines()
    wanted = [line for line in lines if line and not line.startswith("#")]
    assert len(wanted) > 3 and [line for line in wanted if not re.fullmatch(r"[\w.-]+==[\w.]+", line)] == []
