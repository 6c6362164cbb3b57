"""Read the names of Python types: ``module.qualname``, or only the name for types of builtins."""

from __future__ import annotations

from collections.abc import Iterator

from gdbheap._native import Space
from gdbheap.contents.python.objects.attributes import MAX_BASES
from gdbheap.contents.python.objects.reading import Lookups, dict_lookup, read_name
from gdbheap.errors import Fault, Unsupported
from gdbheap.layout.cpython import (
    FLAG_BYTES,
    FLAG_HEAP_TYPE,
    FLAG_UNICODE,
    OB_TYPE,
    TP_BASE,
    TP_DICT,
    TP_FLAGS,
    TP_NAME,
    Release,
)

BUILTINS = ("builtins", "__builtin__")
MAX_NAME_BYTES = 500
# Once MANY_BASES bases were read in total, only FEW_BASES bases are read for each further type.
#
# A hostile target may have as many types as blocks. Real programs have some ten thousand types, with five bases each.
MANY_BASES, FEW_BASES = 1 << 18, 4


class TypeNames:
    """The names of types by address. Each name is read once. ``lost``: other names for types whose own name is not in
    memory.
    """

    def __init__(self, space: Space, release: Release, lost: dict[int, str] | None = None) -> None:
        self._space = space
        self._release = release
        self._lost = lost or {}
        self._names: dict[int, str] = {}
        self._bases_left = MANY_BASES
        self.lookups = Lookups()

    def name(self, address: int) -> str:
        """Return the name of the type at ``address``; ``type at 0x…`` if its name cannot be read."""
        if address not in self._names:
            name = self._read(address) or self._lost.get(address) or self._name_now(address)
            self._names[address] = name or f"type at {address:#x}"
        return self._names[address]

    def _name_now(self, address: int) -> str | None:
        """Return the type's name from the memory of the running process.

        Return None if the process is still stopped, or if all memory was copied. Names of types do not change, so
        the name is still the same.
        """
        space = self._space.as_it_runs()
        return None if space is None else TypeNames(space, self._release)._read(address)

    def with_bases(self, address: int) -> Iterator[str]:
        """Yield the names of the type at ``address`` and of its chain of bases (``tp_base``), until memory cannot be
        read."""
        most = MAX_BASES if self._bases_left > 0 else FEW_BASES
        for _ in range(most if address else 0):
            self._bases_left -= 1
            yield self.name(address)
            try:
                address = self._space.word(address + self._release.at(TP_BASE))
            except Fault:
                break
            if not address:
                break

    def module(self, address: int) -> str:
        """Return the module of the type at ``address``; "builtins" if its name contains no module."""
        if self.flags(address) & FLAG_HEAP_TYPE:
            return self._module(address) or BUILTINS[0]
        try:
            name = self._space.cstring(self._space.word(address + self._release.at(TP_NAME)), MAX_NAME_BYTES)
        except Fault:
            name = b""
        return name.decode("utf-8", "replace").rpartition(".")[0] or BUILTINS[0]

    def flags(self, address: int) -> int:
        """Return ``tp_flags`` of the type at ``address``; 0 if it cannot be read."""
        try:
            return self._space.word(address + self._release.at(TP_FLAGS))
        except Fault:
            return 0

    def _read(self, address: int) -> str | None:
        if self.flags(address) & FLAG_HEAP_TYPE:
            qualname = self._qualname(address)
            if qualname:
                module = self._module(address)
                return qualname if module is None or module in BUILTINS else f"{module}.{qualname}"
        return self._static_name(address)

    def _static_name(self, address: int) -> str | None:
        """Return the name in ``tp_name``, with the module for types of extension modules; None if it cannot be read."""
        try:
            field = self._space.word(address + self._release.at(TP_NAME))
            name = self._space.cstring(field, MAX_NAME_BYTES).decode("utf-8", "replace")
        except Fault:
            return None
        module, _dot, rest = name.partition(".")
        return rest if module in BUILTINS and rest else name or None

    def _qualname(self, address: int) -> str | None:
        try:
            # Python 2 has no qualified names.
            field = self._release.get("ht_qualname") or self._release["ht_name"]
            return self._str(self._space.word(address + field))
        except (Fault, Unsupported):
            return None

    def _module(self, address: int) -> str | None:
        """Return ``__module__`` from the type's dict if it is a string; otherwise None."""
        try:
            held = self._space.word(address + self._release.at(TP_DICT))
            found = dict_lookup(self._space, self._release, held, "__module__", self.lookups)
        except (Fault, Unsupported):
            return None
        return None if found is None else self._str(found)

    def _str(self, address: int) -> str | None:
        try:
            text = FLAG_UNICODE if self._release.get("unicode_state") is not None else FLAG_BYTES
            if not self.flags(self._space.word(address + self._release.at(OB_TYPE))) & text:
                return None
        except Fault:
            return None
        return read_name(self._space, self._release, address, MAX_NAME_BYTES)
