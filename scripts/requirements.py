"""Print what has to be installed to build and test: the build system's, the package's and the tests' requirements.

They are read from where they are declared (pyproject.toml and setup.py), so that no second list can go stale. Nothing
is imported from there: setup.py needs a package that this list has yet to name.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent


def build_requirements(text: str) -> list[str]:
    """Return the strings of ``requires = [...]``; tomllib is newer than Python 3.9."""
    found = re.search(r"^requires = (\[.*?\])$", text, re.MULTILINE | re.DOTALL)
    if found is None:
        raise SystemExit("pyproject.toml has no line `requires = [...]`")
    return list(ast.literal_eval(found.group(1)))


def keywords(text: str) -> dict[str, Any]:
    """Return what the call of setup() in setup.py says of requirements: ``install_requires``, ``extras_require``."""
    call = next(node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call) and _is_setup(node.func))
    wanted = ("install_requires", "extras_require")
    return {keyword.arg: ast.literal_eval(keyword.value) for keyword in call.keywords if keyword.arg in wanted}


def package_requirements(text: str) -> list[str]:
    """Return ``install_requires`` and every extra of the call of setup() in setup.py."""
    given = keywords(text)
    required: list[str] = given["install_requires"]
    return required + [requirement for extra in given["extras_require"].values() for requirement in extra]


def _is_setup(function: ast.expr) -> bool:
    return isinstance(function, ast.Name) and function.id == "setup"


def main() -> None:
    """Print one requirement a line."""
    build = build_requirements((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    package = package_requirements((ROOT / "setup.py").read_text(encoding="utf-8"))
    print("\n".join(build + package))


if __name__ == "__main__":
    main()
