"""Write the licences of the libraries in the native modules: packaging/licences.txt, which is in every package.

With --write the file is written; otherwise the text is printed. cargo lists the linked crates at the releases of
Cargo.lock; the texts are those in the crates themselves, and of two alternative licences the shorter one, MIT's.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PLACE = ROOT / "packaging" / "licences.txt"
TARGET = "x86_64-unknown-linux-gnu"
# A binding has the sources of its C library in its own folder or in this one.
BELOW = ("", "zstd")


def linked() -> list[dict[str, Any]]:
    """Return the crates that are linked into the workspace's crates, as cargo describes them."""
    command = ["cargo", "metadata", "--locked", "--format-version=1", f"--filter-platform={TARGET}"]
    said = subprocess.run([*command, f"--manifest-path={ROOT}/native/Cargo.toml"], stdout=subprocess.PIPE, check=True)
    known = json.loads(said.stdout)
    packages = {package["id"]: package for package in known["packages"]}
    needs = {node["id"]: node["deps"] for node in known["resolve"]["nodes"]}
    reached: set[str] = set()
    waiting = list(known["workspace_members"])
    while waiting:
        crate = waiting.pop()
        if crate not in reached and not _runs_in_the_compiler(packages[crate]):
            reached.add(crate)
            waiting += [need["pkg"] for need in needs[crate] if any(kind["kind"] is None for kind in need["dep_kinds"])]
    found = [packages[crate] for crate in reached if packages[crate]["source"]]
    return sorted(found, key=lambda package: (package["name"], package["version"]))


def _runs_in_the_compiler(package: dict[str, Any]) -> bool:
    return any("proc-macro" in target["kind"] for target in package["targets"])


def texts(package: dict[str, Any]) -> list[str]:
    """Return the text of each licence file of a crate; only of the MIT licence, if the crate has it."""
    folder = Path(package["manifest_path"]).parent
    files = [path for below in BELOW for path in sorted((folder / below).glob("LICEN[CS]E*")) if path.is_file()]
    chosen = [path for path in files if "MIT" in path.name.upper()] or files
    return ["\n".join(line.rstrip() for line in path.read_text("utf-8").strip().splitlines()) for path in chosen]


def document() -> Iterator[str]:
    """Yield each text once, below the names of its crates."""
    yield "gdbheap's native modules are linked with these crates, and with Rust's standard library\n"
    yield "(MIT OR Apache-2.0, https://github.com/rust-lang/rust). gdbheap itself is under Apache-2.0.\n"
    by_text: dict[str, list[str]] = {}
    for package in linked():
        title = f"{package['name']} {package['version']} ({package['license']})"
        for text in texts(package) or [f"See {package['repository']}."]:
            by_text.setdefault(text, []).append(title)
    for text, titles in by_text.items():
        yield "\n" + "=" * 80 + "\n" + "\n".join(titles) + "\n" + "-" * 80 + f"\n{text}\n"


def main() -> None:
    """Print the document, or write it."""
    if sys.argv[1:] not in ([], ["--write"]):
        raise SystemExit("usage: licences.py [--write]")
    text = "".join(document())
    if sys.argv[1:]:
        PLACE.write_text(text, encoding="utf-8")
    else:
        sys.stdout.write(text)


if __name__ == "__main__":
    main()
