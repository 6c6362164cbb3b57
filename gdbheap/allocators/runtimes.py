"""Recognise runtimes and servers that manage their own memory. gdbheap names that memory but does not read it.

The table ``layout/tables/runtimes.json`` says how each runtime is recognised, where its memory lies, and how to ask the
runtime about it. A runtime has one of four marks. It has a file of a known name. The program exports a known function.
The program has the ELF note of Go, which every Go binary has, even if stripped or static. The mappings have known names
(``PR_SET_VMA_ANON_NAME``)."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import field, replace
from functools import cache
from typing import Any

from gdbheap.dataclass import dataclass
from gdbheap.errors import one_line
from gdbheap.host.procfs import PROC
from gdbheap.host.sockets import listening
from gdbheap.layout.shipped_tables import table
from gdbheap.targets.elf import LoadedObject, notes_in
from gdbheap.targets.mappings import KERNELS, Mapping
from gdbheap.targets.target import AT_ENTRY, Target
from gdbheap.text import Sentence, named

NAME_LIMIT = 64
PID, LISTENER = "{pid}", "{listener}"
# The port that the documentation of Go's net/http/pprof uses.
USUAL_PORT = 6060
ANONYMOUS, SHARED, MMAPPED, ALLOCATOR, HELD = KINDS = ("anonymous", "shared", "mmapped", "allocator", "held")


@dataclass(frozen=True)
class RuntimeKind:
    """One row of the table of runtimes.

    ``memory``: where the runtime's memory lies, one of KINDS. ``environment``: settings that ``advice`` names.
    ``programs``: the programs that ``commands`` apply to; empty if they apply to every program of the kind."""

    id: str
    name: str
    memory: str
    files: tuple[str, ...]
    symbols: tuple[str, ...]
    notes: tuple[str, ...]
    mappings: tuple[str, ...]
    advice: str
    commands: tuple[str, ...]
    environment: dict[str, str] = field(default_factory=dict)
    programs: tuple[str, ...] = ()

    def has_file(self, path: str) -> bool:
        """Return whether a file with this path belongs to the runtime, by its name."""
        return _matches(self.files, path)

    def is_asked(self, program: str) -> bool:
        """Return whether ``commands`` apply to a program with this path."""
        return not self.programs or _matches(self.programs, program)

    def names(self, mapping: Mapping) -> bool:
        """Return whether the mapping has a name that the runtime gives its mappings."""
        return bool(self.mappings) and mapping.path.startswith(self.mappings)


@dataclass(frozen=True)
class Runtime:
    """A runtime in a target: its kind, its file, how it was recognised, and the path of the program.

    ``named``: the runtime names its mappings. ``alone``: the target has no other runtime or allocator that could own
    anonymous memory.
    """

    kind: RuntimeKind
    path: str
    evidence: str
    program: str = ""
    named: bool = False
    alone: bool = True

    @property
    def title(self) -> str:
        """The title of the ledger line for the runtime's memory."""
        return title(self.kind.name, self.named)

    def owns(self, mapping: Mapping) -> bool:
        """Return whether a mapping without another owner counts as this runtime's memory."""
        if self.named:
            return self.kind.names(mapping)
        plain = mapping.path == "" and mapping.anonymous and mapping.private
        return self.kind.memory == ANONYMOUS and self.alone and plain

    def commands(self, target: Target) -> list[str]:
        """Return shell commands that ask the runtime about its memory.

        Commands that need a process are left out for a core. Commands that need a network address are left out if the
        process listens on none."""
        pid = target.pid if target.kind == "process" else None
        asked = self.kind.commands if self.kind.is_asked(self.program) else ()
        lines = [line.replace(PID, str(pid)) for line in asked if pid is not None or PID not in line]
        place = _listener(target) if any(LISTENER in line for line in lines) else None
        asking = [line.replace(LISTENER, place or "") for line in lines if place is not None or LISTENER not in line]
        return [Sentence(line) for line in asking]


def _listener(target: Target) -> str | None:
    """Return an address (``host:port``) at which the target, a process on this machine, listens; None if it does not
    listen, or listens in another network namespace: there, another program may have the same address here.

    The port USUAL_PORT is preferred.
    """
    if target.proc is None or not _is_on_our_network(target.proc):
        return None
    places = sorted(listening(f"{PROC}/{target.proc}"), key=lambda place: place[1] != USUAL_PORT)
    return f"{places[0][0]}:{places[0][1]}" if places else None


def _is_on_our_network(process: int | str) -> bool:
    """Return whether a process is in gdbheap's own network namespace; False if the kernel does not show it."""
    with suppress(OSError):
        return os.readlink(f"{PROC}/{process}/ns/net") == os.readlink(f"{PROC}/self/ns/net")
    return False


def title(name: str, named: bool) -> str:
    """Return the title of the ledger line for the memory of a runtime or an allocator.

    ``named``: the runtime or allocator names its mappings. Otherwise the line includes other memory too."""
    return name if named else f"{name} and other anonymous memory"


@cache
def kinds() -> tuple[RuntimeKind, ...]:
    """Return the kinds of runtimes that gdbheap recognises, in the order of ``runtimes.json``."""
    rows: list[dict[str, Any]] = table("runtimes")["runtimes"]
    return tuple(_kind({key: tuple(it) if isinstance(it, list) else it for key, it in row.items()}) for row in rows)


def _kind(row: dict[str, Any]) -> RuntimeKind:
    return RuntimeKind(**row)


def kind_of(loaded: LoadedObject) -> RuntimeKind | None:
    """Return the kind of runtime to which a loaded object belongs, by its file's name or an exported function.

    None if there is none. Only kinds whose memory is anonymous are considered.
    """
    own = (kind for kind in kinds() if kind.memory == ANONYMOUS)
    return next((kind for kind in own if kind.has_file(loaded.path) or any(map(loaded.exported, kind.symbols))), None)


def file_name(path: str) -> str:
    """Return the name of a file, without the folder and without the kernel's " (deleted)"."""
    return path.removesuffix(" (deleted)").rsplit("/", 1)[-1]


def _matches(patterns: tuple[str, ...], path: str) -> bool:
    return any(re.fullmatch(pattern, file_name(path)) for pattern in patterns)


def find_runtimes(target: Target, other: bool) -> list[Runtime]:
    """Return the runtimes that are recognised in a target, each kind at most once, in the order of the table.

    ``other``: an allocator other than glibc's was recognised, which may own any anonymous memory."""
    found = [runtime for kind in kinds() if (runtime := _find(target, kind)) is not None]
    large = [runtime for runtime in found if runtime.kind.memory == ANONYMOUS]
    alone = len(large) == 1 and not other
    return [replace(each, alone=alone) for each in found]


def _find(target: Target, kind: RuntimeKind) -> Runtime | None:
    """Return the runtime of this kind, or None if it is not in the target.

    Evidence in loaded objects is preferred to the names of mappings. The program is searched for functions only if no
    library of the kind is loaded."""
    found = next((mapping for mapping in target.mappings if kind.names(mapping)), None)
    path, evidence = next(_evidence(target, kind), ("", ""))
    if not evidence and found is None:
        return None
    if not evidence:
        name = one_line(found.path if found else "", NAME_LIMIT)
        path, evidence = target.exe or "", Sentence(f"its mappings are named {named(name)}")
    return Runtime(kind, path, evidence, target.exe or "", found is not None)


def _evidence(target: Target, kind: RuntimeKind) -> Iterator[tuple[str, str]]:
    for loaded in target.objects:
        if kind.notes and any(owner in kind.notes for owner in _note_owners(target, loaded)):
            yield loaded.path, f"it has a note of {kind.name}"
    for loaded in target.objects:
        if kind.has_file(loaded.path):
            yield loaded.path, "by its name"
    program = target.object_of(target.auxv.get(AT_ENTRY, 0))
    for name in kind.symbols if program is not None else ():
        if program is not None and (program.exported(name) or ("." in name and program.symbol(name) is not None)):
            yield program.path, f"it has {name}"


def _note_owners(target: Target, loaded: LoadedObject) -> set[str]:
    # Reading the kernel's vdso would make a page of it resident in the process.
    segments = [] if loaded.path.startswith(KERNELS) else loaded.segments
    notes = notes_in(target.space, segments, loaded.bias, target.machine.kernel_start)
    return {note.owner.decode("latin-1") for note in notes}


def not_python(target: Target) -> str | None:
    """Return why the target is not supported, if a Python other than CPython runs in it; otherwise None."""
    found = next((runtime for runtime in find_runtimes(target, False) if runtime.kind.id == "pypy"), None)
    if found is None:
        return None
    where = f"{named(one_line(found.path))}, {found.evidence}"
    return f"PyPy, not supported ({where}): this command is about CPython's objects"
