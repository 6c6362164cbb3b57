"""Print packaging/requirements.txt: gdbheap's requirements at run time, one version each with its hash.

With --write the file is written. The Debian package and the image install from it (pip --require-hashes), so that a
package registry cannot put anything else into them. Run it with a Python that has pip, and a reachable package
registry.
"""

from __future__ import annotations

import json
import subprocess
import sys

from requirements import ROOT, lists

FILE = ROOT / "packaging" / "requirements.txt"
HEAD = "# Written by scripts/locked_requirements.py from the dependencies in pyproject.toml.\n"
PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "-q"]
# The packages that pip would install into an empty environment, without doing so; pure Python packages fit every
# release.
REPORT = ["--dry-run", "--ignore-installed", "--report=-", "--only-binary=:all:"]
ANY = "-none-any.whl"


def locked(required: list[str]) -> str:
    """Return the file's text. Raises SystemExit if a package is not the same for every Python."""
    done = subprocess.run([*PIP, *REPORT, *required], check=True, capture_output=True, text=True)
    return HEAD + "".join(sorted(map(_line, json.loads(done.stdout)["install"])))


def _line(found: dict[str, dict[str, object]]) -> str:
    metadata, download = found["metadata"], found["download_info"]
    if not str(download["url"]).endswith(ANY):
        raise SystemExit(f"{download['url']} is not for every Python: a hash for each would be needed")
    archive = download["archive_info"]
    assert isinstance(archive, dict)
    return f"{metadata['name']}=={metadata['version']} --hash=sha256:{archive['hashes']['sha256']}\n"


def main() -> None:
    """Print the file, or write it."""
    if sys.argv[1:] not in ([], ["--write"]):
        raise SystemExit("usage: locked_requirements.py [--write]")
    text = locked(lists("project")["dependencies"])
    if sys.argv[1:]:
        FILE.write_text(text, encoding="utf-8")
    else:
        sys.stdout.write(text)


if __name__ == "__main__":
    main()
