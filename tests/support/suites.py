"""Libraries of Debian's other suites, unpacked by ``scripts/suites.sh``, and programs that are linked with these
suites' libc.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

__all__ = ["flags_for", "libraries"]

_FOLDER = Path(__file__).parents[2] / "build" / "suites"


def libraries(name: str) -> list[str]:
    """Return the files of each suite's lib``name``, except debug libraries."""
    found = sorted(_FOLDER.glob(f"[!.]*/usr/lib/*/lib{name}.so.*"))
    return [str(path) for path in found if not path.is_symlink() and path.parents[3].suffix != ".part"]


def flags_for(library: str) -> list[str]:
    """Return the linker flags for a program into which ``library`` is preloaded: the loader and the libc of the
    library's suite if they are newer than this system's, else no flags.
    """
    return list(_flags(Path(library)))


def _flags(library: Path) -> Iterator[str]:
    if _FOLDER not in library.parents:
        return
    root = library.parents[3]
    for loader in sorted(root.glob("**/ld-linux*.so.*")):
        yield f"-Wl,--dynamic-linker={loader},--disable-new-dtags,-rpath={loader.parent}"
        return
