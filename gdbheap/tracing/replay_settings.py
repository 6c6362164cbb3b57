"""The settings under which calls are replayed: an allocator and its tunables."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import field

from gdbheap.dataclass import dataclass
from gdbheap.errors import UsageError, one_line
from gdbheap.files import is_file
from gdbheap.host.file_systems import FileSystems
from gdbheap.text import MOST_DIGITS
from gdbheap.tracing.log import RecordedProcess
from gdbheap.tracing.preload import PRELOAD, can_be_preloaded

__all__ = ["GLIBC", "PREFIX", "Setting", "found_allocators", "library_of", "recorded_setting", "tunables_of"]

GLIBC = "glibc"
PREFIX = "glibc.malloc."
TUNABLES = "GLIBC_TUNABLES"
HUGE = f"{PREFIX}hugetlb"
# The tunables that are taken from a log. perturb and check are left out: with them glibc writes to the blocks that it
# hands out. Writing does not move any block, but it would make the replay touch all blocks.
RECORDED = frozenset(
    PREFIX + name
    for name in (
        "arena_max", "arena_test", "hugetlb", "mmap_max", "mmap_threshold", "mxfast", "tcache_count", "tcache_max",
        "tcache_unsorted_limit", "top_pad", "trim_threshold",
    )
)  # fmt: skip
NUMBER = re.compile(r"0|[1-9][0-9]{0,19}|0[xX][0-9a-fA-F]{1,16}")
# Older environment variables of glibc, and the tunables that replace them (malloc/arena.c, elf/dl-tunables.list).
ALIASES = {
    "MALLOC_ARENA_MAX": "arena_max",
    "MALLOC_ARENA_TEST": "arena_test",
    "MALLOC_MMAP_MAX_": "mmap_max",
    "MALLOC_MMAP_THRESHOLD_": "mmap_threshold",
    "MALLOC_PERTURB_": "perturb",
    "MALLOC_TOP_PAD_": "top_pad",
    "MALLOC_TRIM_THRESHOLD_": "trim_threshold",
}
LIBRARIES = {
    "jemalloc": "libjemalloc.so.2",
    "tcmalloc": "libtcmalloc_minimal.so.4",
    "mimalloc": "libmimalloc.so.2",
}
FOLDERS = ("/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/lib", "/usr/local/lib64", "/usr/local/lib")
LIBC = re.compile(r"libc[.-].*so")
LDCONFIG = "/sbin/ldconfig"
LINKER = "/lib64/ld-linux-x86-64.so.2"
TUNABLE = re.compile(r"\A(\S+): (\S+) \(min: (\S+), max: (\S+)\)")


@dataclass(frozen=True)
class Setting:
    """An allocator and its tunables.

    ``library``: the file to preload, None for glibc's allocator; ``tunables``: glibc's tunables, by their full
    names."""

    library: str | None = None
    tunables: Mapping[str, str] = field(default_factory=dict)

    @property
    def allocator(self) -> str:
        """The allocator's display name: glibc, one of LIBRARIES, or else the name of the library's file."""
        if self.library is None:
            return GLIBC
        file = os.path.basename(self.library)
        return next((name for name in LIBRARIES if name in file), file)

    @property
    def tuned(self) -> str:
        """The value of GLIBC_TUNABLES; "" if there are no tunables."""
        return ":".join(f"{name}={value}" for name, value in self.tunables.items())

    def with_tunables(self, **values: int) -> Setting:
        """Return a copy of the setting in which some of malloc's tunables have other values."""
        added = {PREFIX + name: str(value) for name, value in values.items()}
        return Setting(self.library, {**self.tunables, **added})

    def environment(self) -> dict[str, str]:
        """Return the environment for the replayer: gdbheap's own, but with only this setting's variables for malloc."""
        ours = {name: value for name, value in os.environ.items() if name not in (*ALIASES, TUNABLES, PRELOAD)}
        if self.library is not None:
            ours[PRELOAD] = self.library
        if self.tunables:
            ours[TUNABLES] = self.tuned
        return ours


def recorded_setting(who: RecordedProcess, allocator: str | None = None) -> Setting:
    """Return the setting under which the program ran. If the user chose another ``allocator``, the setting has that
    one.

    From the log, only the tunables in RECORDED are used, and only with a NUMBER as their value. Raises UsageError if
    the log names a library that is not one of LIBRARIES, because loading a library runs its code."""
    library = _recorded_library(who.malloc) if allocator is None else library_of(allocator)
    aliases = {PREFIX + tunable: who.environment[name] for name, tunable in ALIASES.items() if name in who.environment}
    parts = (part.partition("=") for part in who.environment.get(TUNABLES, "").split(":"))
    said = {**aliases, **{name: value for name, _, value in parts}}
    tunables = {name: value for name, value in said.items() if name in RECORDED and NUMBER.fullmatch(value)}
    if int(tunables.get(HUGE, "0"), 0) > 1:
        # Larger values take pages from the machine's pool of huge pages, which other programs could then not use.
        tunables[HUGE] = "1"
    return Setting(library, tunables)


def _recorded_library(path: str) -> str | None:
    """Return which of LIBRARIES a path in a log names.

    Return None for glibc, or if the file does not exist. Raises UsageError for any other library.
    """
    held = FileSystems().find(path) if path and not LIBC.match(os.path.basename(path)) else None
    if held is None:
        return None
    found = {os.path.realpath(known): known for known in found_allocators()}
    if held.path not in found:
        raise UsageError(
            f"the program ran with {one_line(path)}, but gdbheap does not load a library only because a trace names "
            f"it: if you trust the library, name it (gdbheap replay --allocator=PATH), or use --allocator={GLIBC}"
        )
    return found[held.path]


def library_of(name: str) -> str | None:
    """Return the library that --allocator names; None for glibc.

    ``name``: one of LIBRARIES, a path, or the name of a file in the usual folders. Raises UsageError if it is not
    found, or cannot be preloaded."""
    if name == GLIBC:
        return None
    path = _find(LIBRARIES.get(name, name))
    if path is None:
        known = ", ".join([GLIBC, *LIBRARIES])
        raise UsageError(
            f"{one_line(name)}: no such library on this machine; give the path of an allocator, or {known}"
        )
    if not can_be_preloaded(path):
        raise UsageError(f"LD_PRELOAD cannot name the allocator, because its path has a space or a colon: {path}")
    return path


def found_allocators() -> list[str]:
    """Return the paths of the installed libraries among LIBRARIES."""
    return [path for path in map(_find, LIBRARIES.values()) if path is not None]


def _find(file: str) -> str | None:
    if os.sep in file:
        return os.path.abspath(file) if is_file(file) else None
    places = [os.path.join(folder, file) for folder in FOLDERS]
    return next((place for place in [*places, _known_to_linker(file)] if place and is_file(place)), None)


def _known_to_linker(file: str) -> str | None:
    """Return the path of a library according to the dynamic linker's cache; None if the cache does not have it."""
    output = ""
    with suppress(OSError, subprocess.SubprocessError):
        output = subprocess.run([LDCONFIG, "-p"], capture_output=True, text=True, timeout=10).stdout
    lines = [line.split() for line in output.splitlines()]
    return next((words[-1] for words in lines if words[:1] == [file] and "x86-64" in "".join(words)), None)


def tunables_of(text: str) -> dict[str, str]:
    """Parse the value of --tunables, which is written like GLIBC_TUNABLES. The prefix "glibc.malloc." may be left out.

    Raises ValueError for a tunable or a value that glibc would ignore without a message."""
    found = {}
    known = _known_tunables()
    for part in filter(None, text.split(":")):
        name, equals, value = part.partition("=")
        whole = name if "." in name else PREFIX + name
        if not equals or not value or set(part) & set(" \t\n"):
            raise ValueError(f"{part!r} is not a tunable: give NAME=VALUE, and separate several tunables with colons")
        if known and whole not in known:
            raise ValueError(f"{whole!r} is not a tunable of glibc ({LINKER} --list-tunables lists them)")
        _check_value(whole, value, known)
        found[whole] = value
    return found


def _check_value(name: str, value: str, known: Mapping[str, tuple[int, int]]) -> None:
    try:
        number = int(value[: MOST_DIGITS + 1], 0)
    except ValueError:
        raise ValueError(
            f"{value!r} is not a value for {name}: give bytes, in digits or in hexadecimal with 0x"
        ) from None
    least, most = known.get(name, (number, number))
    if not least <= number <= most:
        raise ValueError(f"{name} must be at least {least} and at most {most}")


def _known_tunables() -> dict[str, tuple[int, int]]:
    """Return the least and the greatest value of each tunable; empty if glibc cannot list them (before 2.33)."""
    output = ""
    with suppress(OSError, subprocess.SubprocessError):
        output = subprocess.run([LINKER, "--list-tunables"], capture_output=True, text=True, timeout=10).stdout
    rows = filter(None, map(TUNABLE.match, output.splitlines()))
    return {row[1]: (int(row[3], 0), int(row[4], 0)) for row in rows}
