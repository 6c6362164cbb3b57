"""CONTRIBUTING.md's recipes, followed literally in a scratch copy."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

from support.programs import PATIENCE, c_program, running

import gdbheap

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "CONTRIBUTING.md"
STEP = re.compile(r"^\d\. \*\*.*?(?=^\d\. \*\*|\Z)", re.MULTILINE | re.DOTALL)
FILE = re.compile(r"`([\w/]+\.py)`")
BLOCK = re.compile(r"^   ```python\n(.*?)^   ```$", re.MULTILINE | re.DOTALL)
LIST, CONTENTS = "commands/surface/registry.py", "gdbheap/contents/registry.py"
FIRST_OF_CONTENTS = "(PythonContent, "
LAST_IMPORT = "from gdbheap.contents.python.content import PythonContent\n"
FIRST_OF_LIST = '        "arenas": "arenas",\n'
# The tests of the sources alone.
GUARDS = ("contents_named", "dataclass", "found_by_name", "imports")


def steps(title: str) -> list[tuple[str, str]]:
    """Return (file, code) of each step of the section that has code."""
    section = PAGE.read_text(encoding="utf-8").split(f"## {title}\n")[1].split("\n## ")[0]
    found = []
    for step in STEP.findall(section):
        if code := BLOCK.search(step):
            (name,) = FILE.findall(step.split("\n   ```")[0])[:1]
            found.append((name, textwrap.dedent(code[1])))
    return found


class Copy:
    """A checkout, and the package that is built from it."""

    def __init__(self, folder: Path) -> None:
        self.checkout, self.site = folder / "checkout", folder / "site"
        names = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout.split(b"\0")
        for name in (os.fsdecode(name) for name in names if name):
            if (ROOT / name).is_file():
                (self.checkout / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(ROOT / name, self.checkout / name)

    def build(self) -> None:
        """Copy the Python files of the checkout to the folder of the built Rust modules."""
        package = self.site / "gdbheap"
        shutil.copytree(self.checkout / "gdbheap", package)
        shutil.copytree(self.checkout / "commands", package / "commands")
        for built in Path(gdbheap.__file__).parent.glob("_*"):
            if built.is_file() and not (package / built.name).exists():
                shutil.copy(built, package / built.name)

    def run(self, *words: str) -> str:
        """Run the checkout's Python in it with these arguments; return its output."""
        environment = {**os.environ, "PYTHONPATH": str(self.site)}
        options = {"cwd": self.checkout, "env": environment, "timeout": PATIENCE}
        done = subprocess.run([sys.executable, *words], capture_output=True, text=True, **options)
        assert done.returncode == 0, (words, done.stdout[-3000:], done.stderr[-3000:])
        return done.stdout

    def check_sources(self) -> None:
        """Run the tests of the order of the sources."""
        for name in GUARDS:
            self.run("-m", "pytest", "-q", "-p", "no:cacheprovider", f"tests/test_{name}.py")


def test_a_command(tmp_path: Path) -> None:
    """Check that the new command answers, is in every help, and passes ruff and the tests that go through all
    commands."""
    copy = Copy(tmp_path)
    files = steps("How to add a command")
    assert [name for name, _ in files][-1] == LIST and len(files) == 4
    for name, code in files[:-1]:
        assert not (copy.checkout / name).exists()
        (copy.checkout / name).write_text(code, encoding="utf-8")
    registry = copy.checkout / LIST
    text = registry.read_text(encoding="utf-8")
    assert FIRST_OF_LIST in text
    registry.write_text(text.replace(FIRST_OF_LIST, f"{FIRST_OF_LIST}        {files[-1][1]}"), encoding="utf-8")
    copy.build()
    for script in ("command_docs.py", "json_docs.py", "gdb_help.py"):
        copy.run(f"scripts/{script}", "--write")
    for page in ("docs/commands.md", "docs/json.md", "gdbheap/loader/help.txt"):
        assert "oldest" in (copy.checkout / page).read_text(encoding="utf-8"), page
    with running(c_program("ended", 1, 3, 5, tmp_path / "table"), tmp_path) as target:
        command = "packaging/script/gdbheap-python"
        answer = json.loads(copy.run(command, "oldest", str(target.pid), "--json"))
        shown = copy.run(command, "oldest", str(target.pid), "--threads")
    assert answer["rows"][0]["index"] == 0 and "in use" in shown
    copy.run("-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/test_completion.py", "tests/test_commands.py")
    copy.check_sources()
    for tool in (["ruff", "check", "-q"], ["ruff", "format", "--check", "-q"]):
        copy.run("-m", *tool, *(name for name, _ in files))


def test_a_kind_of_contents(tmp_path: Path) -> None:
    """Check that the new kind names its blocks, and passes ruff."""
    copy = Copy(tmp_path)
    ((name, code),) = steps("How to add a kind of contents")
    (copy.checkout / name).parent.mkdir()
    (copy.checkout / name).with_name("__init__.py").write_text('"""C\'s own files."""\n', encoding="utf-8")
    (copy.checkout / name).write_text(code, encoding="utf-8")
    found = copy.checkout / CONTENTS
    text = found.read_text(encoding="utf-8")
    module = name.removesuffix(".py").replace("/", ".")
    assert FIRST_OF_CONTENTS in text
    text = text.replace(FIRST_OF_CONTENTS, f"{FIRST_OF_CONTENTS}StdioContent, ")
    text = text.replace(LAST_IMPORT, f"{LAST_IMPORT}from {module} import StdioContent\n")
    found.write_text(text, encoding="utf-8")
    copy.build()
    copy.run("scripts/rooms.py", "--write")
    copy.check_sources()
    with running(c_program("opens_files", 37), tmp_path) as target:
        command = "packaging/script/gdbheap-python"
        answer = json.loads(copy.run(command, "chunks", str(target.pid), "--by=type", "--json"))
    assert {row["type"]: row["count"] for row in answer["rows"]}["stdio FILE"] == 37
    for tool in (["ruff", "check", "-q"], ["ruff", "format", "--check", "-q"]):
        copy.run("-m", *tool, name)
