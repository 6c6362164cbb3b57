"""Find the files on this machine that a core's process had mapped.

gdbheap searches for a file at the path that the process saw, also below a copy of the process's root folder. It
searches the folders of the core and of the program too. If the build-id is known, it searches the folders where
distributions and debuginfod's client keep files by build-id. A file is accepted if it has the build-id that is in
memory. If a core lacks the pages of ELF headers, a file is accepted if its data equals the data in memory
(``agreement``).
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import field
from typing import TYPE_CHECKING

from gdbheap.dataclass import dataclass
from gdbheap.host.file_systems import FileSystems
from gdbheap.machines import image
from gdbheap.machines.machine import Machine
from gdbheap.targets.cores import debuginfod
from gdbheap.targets.cores.agreement import ComparisonBudget, agreement
from gdbheap.targets.elf import ElfFile, ElfFiles, LoadedObject, placed_object
from gdbheap.targets.mappings import Mapping, Mappings
from gdbheap.targets.unseen_files import UnseenFile

if TYPE_CHECKING:
    from gdbheap._native import Space

DELETED = " (deleted)"
BY_BUILD_ID = ("/usr/lib/debug/.build-id", "/usr/lib/.build-id")
UNSEEN_LIMIT = 10_000
# The most mappings of one path, each from the file's beginning, that are checked for a loaded object.
TRIED = 16


@dataclass
class SearchPlaces:
    """The paths and folders where the files of a core's process are searched.

    ``core``: the core's path, if it has one.
    ``exe``: the path of the program, if the user named it.
    ``sysroot``: a folder that stands for the process's root folder.
    ``program``: the program's path as the process saw it.
    ``fetch``: asks debuginfod for the file with a build-id (``debuginfod.fetcher``).
    """

    core: str | None = None
    exe: str | None = None
    sysroot: str | None = None
    program: str | None = None
    fetch: Callable[[str], str | None] | None = None
    root: str = field(init=False, default="")

    def __post_init__(self) -> None:
        self.root = root_folder(self.exe, self.program) if self.exe else ""

    def named(self, path: str) -> list[str]:
        """Return the paths at which this machine may have the file that the process saw at ``path``, the likeliest
        first.
        """
        path = path.removesuffix(DELETED)
        beside = [os.path.dirname(os.path.abspath(one)) for one in (self.core, self.exe) if one]
        roots = [self.sysroot, "", self.root]
        found = [os.path.normpath(root + path) for root in roots if root is not None and path.startswith("/")]
        found += [self.exe] if self.exe else []
        found += [f"{folder}/{path.rpartition('/')[2]}" for folder in beside]
        found += [os.path.normpath(f"{folder}/{path}") for folder in beside]
        return list(dict.fromkeys(found))

    def identified(self, build_id: str) -> Iterator[str]:
        """Yield paths where a file with this build-id may be, under any name. Separate debug files come last."""
        roots = [self.sysroot, ""] if self.sysroot else [""]
        names = [f"{root}{folder}/{build_id[:2]}/{build_id[2:]}" for root in roots for folder in BY_BUILD_ID]
        yield from names
        cached = debuginfod.cached(build_id)
        yield from cached
        fetched = self.fetch(build_id) if self.fetch is not None and not cached else None
        if fetched is not None:
            yield fetched
        yield from (f"{name}.debug" for name in names)


def root_folder(exe: str, program: str | None) -> str:
    """Return the copy of the process's root folder: the path of ``exe`` without ``program`` at its end.

    Return "" if ``program`` is unknown or not an absolute path. Return "" also if the path of ``exe`` does not end with
    it.
    """
    held = FileSystems(named=[exe]).find(exe)
    path = held.path if held is not None else os.path.abspath(exe)
    if not program or not program.startswith("/") or not path.endswith(program):
        return ""
    return path.removesuffix(program)


class CoreFiles:
    """The search for the files of one core.

    ``entry``: the program's AT_ENTRY, if known.
    ``unseen``: the files that were not found. Their objects stay unknown.
    """

    def __init__(
        self,
        machine: Machine,
        mappings: Mappings,
        space: Space,
        files: ElfFiles,
        places: SearchPlaces,
        entry: int | None,
    ) -> None:
        self._machine, self._mappings, self._space = machine, mappings, space
        self._files, self._places, self._entry = files, places, entry
        self._with_code = {mapping.path for mapping in mappings if mapping.executable or mapping.writable}
        self._tried: Counter[str] = Counter()
        self._left = ComparisonBudget()
        self.unseen: list[UnseenFile] = []

    def candidates(self, first: Mapping) -> list[str]:
        """Return the paths where the file of an object may be found. ``first``: the object's first mapping."""
        return self._places.named(first.path)

    def identify(self, loaded: LoadedObject) -> None:
        """Find the file of an object that has none yet, by its build-id.

        If the core lacks the page with the build-id, find the file by its path and by the data in memory. For example,
        patchelf moves the build-id to a page away from the headers.
        """
        if loaded.elf is not None:
            return
        if loaded.build_id is not None:
            loaded.elf = self._files.matching(self._places.identified(loaded.build_id), loaded.build_id)
            return
        for path in self.candidates(loaded.mappings[0]) if loaded.mappings else ():
            elf = self._files.get(path)
            if elf is None or not elf.has_contents:
                continue
            known = agreement(self._machine, self._space, loaded, elf, self._left)
            if known.holds:
                loaded.elf, loaded.build_id, loaded.agreed = elf, elf.build_id, known.equal
                return

    def headerless(self, index: int) -> LoadedObject | None:
        """Return the object whose first mapping has this index, for an object whose ELF header the core lacks. The
        header of its file is used instead.

        Return None if memory has the header, or if no file is accepted as the one that was mapped. Return None also
        after TRIED mappings of this path. A program or library for which no file is accepted is added to ``unseen``.
        """
        first = self._mappings[index]
        if self._space.contains(first.start, image.HEADER_SIZE):
            return None
        self._tried[first.path] += 1
        if self._tried[first.path] > TRIED:
            return None
        looked: list[tuple[bool, str]] = []
        name = os.path.basename(first.path.removesuffix(DELETED))
        for path in self.candidates(first):
            elf = self._files.get(path)
            if elf is None or not elf.has_contents:
                continue
            found, refuted = self._placed(index, elf)
            if found is not None:
                return found
            looked += [(refuted, path)] if os.path.basename(path) == name else []
        if first.path in self._with_code and len(self.unseen) < UNSEEN_LIMIT:
            # A file that is certainly another version tells the user more than a file about which nothing could be
            # decided.
            refuted, other = max(looked, key=lambda row: row[0], default=(False, None))
            self.unseen.append(UnseenFile(first.path, first.start, other, refuted))
        return None

    def _placed(self, index: int, elf: ElfFile) -> tuple[LoadedObject | None, bool]:
        """Return the object that begins at the mapping ``index``, and whether any fact excludes the file ``elf``.

        The object is None unless the file fits the mappings and equals the object's memory.
        """
        found = placed_object(self._machine, self._mappings, index, elf.segments, whole=True)
        if found is None:
            return None, True
        inside = self._entry is not None and any(self._entry in mapping for mapping in found.mappings)
        if inside and found.bias + elf.entry != self._entry:
            return None, True
        known = agreement(self._machine, self._space, found, elf, self._left)
        if not known.holds:
            return None, known.refuted
        found.elf, found.build_id, found.agreed = elf, elf.build_id, 0 if known.by_id else known.equal
        return found, False
