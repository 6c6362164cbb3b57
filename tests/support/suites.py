"""Libraries of Debian's other suites, unpacked by ``scripts/suites.sh``, and programs for these suites' libc."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

__all__ = ["flags_for", "libraries"]

_FOLDER = Path(__file__).parents[2] / "build" / "suites"


def libraries(name: str) -> list[str]:
    """Return the files of each suite's lib``name``, without debugging ones."""
    found = sorted(_FOLDER.glob(f"[!.]*/usr/lib/*/lib{name}.so.*"))
    return [str(path) for path in found if not path.is_symlink() and path.parents[3].suffix != ".part"]


def flags_for(library: str) -> list[str]:
    """Return the flags with which a program is linked that ``library`` is preloaded into: the loader and the libc of
    its suite if these are newer than this system's; none for other libraries."""
    return list(_flags(Path(library)))


def _flags(library: Path) -> Iterator[str]:
    if _FOLDER not in library.parents:
        return
    root = library.parents[3]
    for loader in sorted(root.glob("**/ld-linux*.so.*")):
        yield f"-Wl,--dynamic-linker={loader},--disable-new-dtags,-rpath={loader.parent}"
        return
