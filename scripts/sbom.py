"""Print the bill of materials of the packages, as CycloneDX 1.6 in JSON: the crates that are linked in, and the Python
packages that the Debian package and the image contain.

The crates are those of scripts/licences.py, with the checksums of Cargo.lock; the Python packages are those of
packaging/requirements.txt. SOURCE_DATE_EPOCH is its time, so that the same commit gives the same file.
"""

from __future__ import annotations

import datetime
import json
import os
import re
from typing import Any

from licences import ROOT, linked

NAME = "gdbheap"


def version() -> str:
    """Return gdbheap's version, without importing it."""
    text = (ROOT / NAME / "__init__.py").read_text(encoding="utf-8")
    (found,) = re.findall(r'^__version__ = "(.+)"$', text, re.MULTILINE)
    return str(found)


def component(kind: str, name: str, version: str, licence: str, sha256: str) -> dict[str, Any]:
    """Return the entry of a library. ``kind``: its kind in a package URL. ``licence``: an SPDX expression, or empty."""
    purl = f"pkg:{kind}/{name}@{version.replace('+', '%2B')}"
    found: dict[str, Any] = {"type": "library", "bom-ref": purl, "name": name, "version": version, "purl": purl}
    if sha256:
        found["hashes"] = [{"alg": "SHA-256", "content": sha256}]
    if licence:
        # Old releases of crates write "or" as a slash.
        found["licenses"] = [{"expression": re.sub(" ?/ ?", " OR ", licence)}]
    return found


def components() -> list[dict[str, Any]]:
    """Return the crates, then the Python packages, each in the order of their names."""
    lock = (ROOT / "native" / "Cargo.lock").read_text(encoding="utf-8")
    sums = {
        (name, number): checksum
        for name, number, checksum in re.findall(
            r'^name = "(.*)"\nversion = "(.*)"\nsource = .*\nchecksum = "(.*)"', lock, re.MULTILINE
        )
    }
    crates = [(package["name"], package["version"], package["license"] or "") for package in linked()]
    locked = (ROOT / "packaging" / "requirements.txt").read_text(encoding="utf-8")
    packages = re.findall(r"^([\w.-]+)==(\S+) --hash=sha256:(\w+)$", locked, re.MULTILINE)
    return [component("cargo", *crate, sums[crate[:2]]) for crate in crates] + [
        component("pypi", name, number, "", checksum) for name, number, checksum in packages
    ]


def document() -> dict[str, Any]:
    """Return the whole document."""
    parts = components()
    own = component("pypi", NAME, version(), "Apache-2.0", "") | {"type": "application", "bom-ref": NAME}
    seconds = int(os.environ.get("SOURCE_DATE_EPOCH", "0"))
    made = datetime.datetime.fromtimestamp(seconds, datetime.timezone.utc)
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"timestamp": made.strftime("%Y-%m-%dT%H:%M:%SZ"), "component": own},
        "components": parts,
        "dependencies": [
            {"ref": NAME, "dependsOn": [part["bom-ref"] for part in parts]},
            *({"ref": part["bom-ref"]} for part in parts),
        ],
    }


def main() -> None:
    """Print the document."""
    print(json.dumps(document(), indent=1))


if __name__ == "__main__":
    main()
