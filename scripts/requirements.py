"""Print the packages that are needed to build and test: the build system's, the package's and the tests' requirements.

With --small only those to build and to run without extras. They are read from pyproject.toml, so no second list can
become outdated.
"""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def lists(table: str) -> dict[str, list[str]]:
    """Return the lists of strings in a table of pyproject.toml.

    Python 3.9 has no tomllib, but a list of strings in TOML is also one in Python.
    """
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    (body,) = re.findall(rf"^\[{re.escape(table)}\]\n(.*?)(?=^\[|\Z)", text, re.MULTILINE | re.DOTALL)
    found = re.findall(r"^([\w-]+) = (\[.*?\])$", body, re.MULTILINE | re.DOTALL)
    return {name: ast.literal_eval(value) for name, value in found if not value.startswith("[{")}


def main() -> None:
    """Print one requirement per line."""
    required = lists("build-system")["requires"] + lists("project")["dependencies"]
    if sys.argv[1:] != ["--small"]:
        required += [one for extra in lists("project.optional-dependencies").values() for one in extra]
    print("\n".join(required))


if __name__ == "__main__":
    main()
