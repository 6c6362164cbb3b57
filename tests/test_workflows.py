"""The files in .github and the pre-commit settings: they parse, and name only commands that exist."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

yaml = pytest.importorskip("yaml")
ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / ".github"
FILES = sorted([*FOLDER.rglob("*.yml"), ROOT / ".pre-commit-config.yaml", ROOT / "CITATION.cff"])
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
TARGETS = {name for names in re.findall(r"^([\w -]+):", MAKEFILE, re.MULTILINE) for name in names.split()}

if not FOLDER.exists():
    pytest.skip("the source distribution has no workflows", allow_module_level=True)


def lines(found: Any) -> list[str]:
    """Return all command lines in a parsed file, wherever they are in it."""
    if isinstance(found, dict):
        own = [found[key] for key in ("run", "entry") if isinstance(found.get(key), str)]
        return [line for text in own for line in text.splitlines()] + lines(list(found.values()))
    return [line for one in found for line in lines(one)] if isinstance(found, list) else []


def unknown(line: str) -> list[str]:
    """Return the make targets and scripts in a command line that do not exist or are not executable."""
    targets = [word for words in re.findall(r"\bmake ([\w -]+)", line) for word in words.split() if "=" not in word]
    missing = [f"make {target}" for target in targets[:1] if target not in TARGETS]
    files = re.findall(r"(?<![\w./-])((?:scripts|tests|benchmarks)/[\w./-]+)", line)
    return missing + [
        name for name in files if not os.access(ROOT / name, os.X_OK if name.endswith(".sh") else os.R_OK)
    ]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_a_file_parses(path: Path) -> None:
    """Check that each file is YAML with a table at its top, and that its commands exist."""
    found = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert isinstance(found, dict)
    assert [wrong for line in lines(found) for wrong in unknown(line)] == []


def test_the_check_finds_what_is_missing() -> None:
    """Check that a target or a script that does not exist would be found."""
    assert unknown("make nothing") == ["make nothing"] and unknown("sudo make matrix SUITES=sid") == []
    assert unknown("scripts/nothing.sh --again") == ["scripts/nothing.sh"] and unknown("scripts/release.sh") == []


def test_workflows_do_what_is_promised() -> None:
    """Check that the workflows test, build the packages and the site, and try the newest sources once a week."""
    run = {path.stem: lines(yaml.safe_load(path.read_text())) for path in (FOLDER / "workflows").iterdir()}
    assert (
        {"make test"} <= {*run["test"]} and {"make release"} <= {*run["packages"]} and {"make site"} <= {*run["docs"]}
    )
    # YAML reads the key "on" as true.
    (when,) = [found[True] for found in [yaml.safe_load((FOLDER / "workflows" / "canaries.yml").read_text())]]
    assert len(when["schedule"]) == 1


def test_reports_have_what_maintainers_need() -> None:
    """Check that a report of a wrong answer must have the output of doctor and info."""
    form = yaml.safe_load((FOLDER / "ISSUE_TEMPLATE" / "wrong-answer.yml").read_text())
    required = {part["id"] for part in form["body"] if part.get("validations", {}).get("required")}
    assert {"doctor", "info", "version"} <= required
    for name in ("pull_request_template.md", "ISSUE_TEMPLATE/request.yml"):
        text = (FOLDER / name).read_text()
        assert "gdbheap doctor" in text and "gdbheap info" in text


def test_actionlint() -> None:
    """Check the workflows by actionlint, if it is installed."""
    program = shutil.which("actionlint")
    if program is None:
        pytest.skip("no actionlint")
    done = subprocess.run([program, *map(str, (FOLDER / "workflows").iterdir())], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
