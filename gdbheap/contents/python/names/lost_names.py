"""Name static types in a core that lacks their names, without the files from which they were loaded.

The name of a static type lies in read-only data, which a core may lack. The type itself, and the module dicts in which
it has a key, are in the core.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress

from gdbheap._native import Space
from gdbheap.contents.python.names.type_names import BUILTINS
from gdbheap.contents.python.objects.reading import Lookups, dict_items, dict_lookup, read_name
from gdbheap.dataclass import dataclass
from gdbheap.errors import Fault, Unsupported
from gdbheap.layout.cpython import (
    FLAG_EXCEPTION,
    FLAG_HEAP_TYPE,
    FLAG_TYPE,
    MODULE_DICT,
    OB_TYPE,
    TP_DICT,
    TP_DICTOFFSET,
    TP_FLAGS,
    Release,
)
from gdbheap.targets.ranges import Ranges, holds

MAX_NAME_LENGTH, MAX_PATH_LENGTH = 100, 4 << 10
PYTHON2_EXCEPTIONS = "exceptions"
ABC = ("_collections_abc", "collections.abc")

# The names in Lib/types.py for types of the interpreter that are not in builtins. Iterators have names in
# Lib/_collections_abc.py.
TYPES = {
    "FunctionType": "function",
    "CodeType": "code",
    "MappingProxyType": "mappingproxy",
    "DictProxyType": "dictproxy",
    "SimpleNamespace": "types.SimpleNamespace",
    "CellType": "cell",
    "GeneratorType": "generator",
    "CoroutineType": "coroutine",
    "AsyncGeneratorType": "async_generator",
    "MethodType": "method",
    "BuiltinFunctionType": "builtin_function_or_method",
    "WrapperDescriptorType": "wrapper_descriptor",
    "MethodWrapperType": "method-wrapper",
    "MethodDescriptorType": "method_descriptor",
    "ClassMethodDescriptorType": "classmethod_descriptor",
    "ModuleType": "module",
    "TracebackType": "traceback",
    "FrameType": "frame",
    "GetSetDescriptorType": "getset_descriptor",
    "MemberDescriptorType": "member_descriptor",
    "GenericAlias": "types.GenericAlias",
    "NoneType": "NoneType",
    "NotImplementedType": "NotImplementedType",
    "EllipsisType": "ellipsis",
    "CapsuleType": "PyCapsule",
    "FrameLocalsProxyType": "FrameLocalsProxy",
    "LazyImportType": "lazy_import",
}
ITERATORS = ("iterator", "_keys", "_values", "_items")
# Names in Lib/_collections_abc.py that may stand for another type: since 3.11 the iterator of an ASCII str has its own
# type.
AMBIGUOUS = ("str_iterator", "zip_iterator")
# Names in builtins that are aliases: their types have another name.
ALIASES = ("EnvironmentError", "IOError", "bytes")
# Modules whose types have no underscore in their names, although the module that makes these types has one.
PUBLIC = ("collections", "datetime", "decimal", "functools", "operator", "weakref")
RENAMED = {
    "array.ArrayType": "array.array",
    "_thread.LockType": "_thread.lock",
    "thread.LockType": "thread.lock",
    "collections._tuplegetter": "_collections._tuplegetter",
}
# Entries in the dicts of types: (name of the type, key, name of the type of the value).
EXAMPLES = (
    ("dict", "keys", "method_descriptor"),
    ("dict", "__len__", "wrapper_descriptor"),
    ("dict", "fromkeys", "classmethod_descriptor"),
    ("object", "__class__", "getset_descriptor"),
    ("type", "__basicsize__", "member_descriptor"),
)


@dataclass(frozen=True)
class ModuleEntry:
    """An entry of a module's dict with a type as its value.

    ``module``: the module's name.
    ``key``: the key of the entry.
    ``in_c``: whether the module is written in C.
    """

    module: str
    key: str
    in_c: bool


def lost_names(space: Space, release: Release, modules: Iterable[int], data: Ranges) -> dict[int, str]:
    """Return {address of the type: name} for the types in ``data`` that are values in dicts of ``modules``.

    ``data``: the writable data of loaded objects. An object whose dict has no ``__name__`` is not a module."""
    found: dict[int, list[ModuleEntry]] = {}
    kinds: dict[int, str] = {}
    for module in modules:
        with suppress(Fault, Unsupported):
            for value, place in _places(space, release, space.word(module + release.at(MODULE_DICT)), data):
                found.setdefault(value, []).append(place)
                if place.module in BUILTINS:
                    kinds[space.word(module + release.at(OB_TYPE))] = "module"
    renamed = {**RENAMED, **release.names}
    named = {address: _best(places) for address, places in found.items()}
    names = {address: renamed.get(name, name) for address, name in named.items()}
    return {**_examples(space, release, names), **kinds, **names}


def _examples(space: Space, release: Release, names: dict[int, str]) -> dict[int, str]:
    """Return the names of the types of some values in the dicts of well-known types (EXAMPLES).

    Since 3.12 the types do not point to their dicts, and the result is empty.
    """
    addresses = {name: address for address, name in names.items()}
    found = {}
    for holder, key, name in EXAMPLES:
        with suppress(Fault, Unsupported, KeyError):
            held = space.word(addresses[holder] + release.at(TP_DICT))
            value = dict_lookup(space, release, held, key, Lookups()) if held else None
            if value is not None:
                found[space.word(value + release.at(OB_TYPE))] = name
    return found


def _places(space: Space, release: Release, held: int, data: Ranges) -> Iterator[tuple[int, ModuleEntry]]:
    """Yield (address of the type, its entry in the dict) for the static types in a module's dict. Raises Fault.

    ``held``: the address of the dict. ``data``: the writable data of loaded objects, which contains the static types.
    """
    entries = [
        (read_name(space, release, key, MAX_NAME_LENGTH), value) for key, value in dict_items(space, release, held)
    ]
    words = {key: value for key, value in entries if key in ("__name__", "__file__")}
    if "__name__" not in words:
        return
    name = read_name(space, release, words["__name__"], MAX_NAME_LENGTH)
    file = read_name(space, release, words["__file__"], MAX_PATH_LENGTH) if "__file__" in words else None
    in_c = name != "__main__" and not (file or "").endswith((".py", ".pyc"))
    for key, value in entries:
        if not name or not key or not holds(data, value):
            continue
        if space.word(space.word(value + release.at(OB_TYPE)) + release.at(TP_FLAGS)) & FLAG_TYPE:
            yield value, ModuleEntry(name, key, in_c)


def _best(places: list[ModuleEntry]) -> str:
    """Return the most likely name of a type, given the entries of module dicts with the type as their value.

    Names in ``exceptions`` (Python 2) and builtins come first, then known names in ``types`` and ``collections.abc``.
    Any other type is named ``module.key``.
    """
    if any(place.module == PYTHON2_EXCEPTIONS for place in places):
        return f"{PYTHON2_EXCEPTIONS}.{max(place.key for place in places if place.module == PYTHON2_EXCEPTIONS)}"
    own = [place.key for place in places if place.module in BUILTINS]
    if own:
        return next((key for key in own if key not in ALIASES), own[0])
    for place in places:
        if place.module in ("types", "_types") and place.key in TYPES:
            return TYPES[place.key]
    for place in places:
        if place.module in ABC and place.key.endswith(ITERATORS) and place.key not in AMBIGUOUS:
            return place.key
    return _dotted(places)


def _dotted(places: list[ModuleEntry]) -> str:
    """Return ``module.key``, preferably for a module written in C: other modules have only imported the type."""
    candidates = [place for place in places if place.in_c] or places
    home = min((place.module for place in candidates), key=lambda module: (len(module), module))
    # The longest key wins: weakref.ref is also weakref.ReferenceType.
    key = max((place.key for place in candidates if place.module == home), key=lambda key: (len(key), key))
    outer = home.removeprefix("_")
    if outer == "io":
        # Up to 3.11 the module is named io, but its types belong to _io.
        return f"_io.{key}"
    return f"{outer if outer in PUBLIC else home}.{key}"


def like_modules(space: Space, release: Release, types: Iterable[int]) -> list[int]:
    """Return the addresses of the types whose objects begin with a pointer to a dict. One of them is the type of
    modules. Exceptions are left out.
    """
    found = []
    for address in types:
        with suppress(Fault):
            flags, offset = space.word(address + release.at(TP_FLAGS)), space.word(address + release.at(TP_DICTOFFSET))
            if offset == release.at(MODULE_DICT) and not flags & (FLAG_EXCEPTION | FLAG_HEAP_TYPE):
                found.append(address)
    return found
