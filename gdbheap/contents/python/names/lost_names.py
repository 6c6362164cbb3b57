"""Name static types in a core that lacks the read-only data of their file, without another copy of that file.

A static type's name lies in that data; the type itself, and the module dicts that hold it by a name, do not.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass

from gdbheap._native import Space
from gdbheap.contents.python.names.type_names import BUILTINS
from gdbheap.contents.python.objects.reading import Lookups, dict_items, dict_lookup, read_name
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

# The names in Lib/types.py of types of the interpreter that are not in builtins. Lib/_collections_abc.py has iterators.
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
# Since 3.11 the iterator of an ASCII str is a type of its own.
AMBIGUOUS = ("str_iterator", "zip_iterator")
# Older names of types that have another name now.
ALIASES = ("EnvironmentError", "IOError", "bytes")
# Modules whose types are named without the underscore of the module in which they were made.
PUBLIC = ("collections", "datetime", "decimal", "functools", "operator", "weakref")
RENAMED = {
    "array.ArrayType": "array.array",
    "_thread.LockType": "_thread.lock",
    "thread.LockType": "thread.lock",
    "collections._tuplegetter": "_collections._tuplegetter",
}
# Entries in the dicts of types: (the type's name, key, name of the value's type).
EXAMPLES = (
    ("dict", "keys", "method_descriptor"),
    ("dict", "__len__", "wrapper_descriptor"),
    ("dict", "fromkeys", "classmethod_descriptor"),
    ("object", "__class__", "getset_descriptor"),
    ("type", "__basicsize__", "member_descriptor"),
)


@dataclass(frozen=True)
class Place:
    """Where a type is held: a module's name, the key there, and whether the module is written in C."""

    module: str
    key: str
    in_c: bool


def lost_names(space: Space, release: Release, modules: Iterable[int], data: Ranges) -> dict[int, str]:
    """Return {type: name} of the types in ``data`` that dicts of ``modules`` hold.

    ``data``: the writable data of loaded objects. An object without ``__name__`` in its dict is no module."""
    found: dict[int, list[Place]] = {}
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
    """Return the names of the types of values in the dicts of well-known types. Since 3.12 these dicts are
    elsewhere."""
    addresses = {name: address for address, name in names.items()}
    found = {}
    for holder, key, name in EXAMPLES:
        with suppress(Fault, Unsupported, KeyError):
            held = space.word(addresses[holder] + release.at(TP_DICT))
            value = dict_lookup(space, release, held, key, Lookups()) if held else None
            if value is not None:
                found[space.word(value + release.at(OB_TYPE))] = name
    return found


def _places(space: Space, release: Release, held: int, data: Ranges) -> Iterator[tuple[int, Place]]:
    """Yield (type, place) of the static types in a module's dict. Raises Fault."""
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
            yield value, Place(name, key, in_c)


def _best(places: list[Place]) -> str:
    """Return the name of a type, from the modules that hold it."""
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


def _dotted(places: list[Place]) -> str:
    """Return ``module.key``, preferably of a module written in C: other modules have imported the type."""
    candidates = [place for place in places if place.in_c] or places
    home = min((place.module for place in candidates), key=lambda module: (len(module), module))
    # weakref.ref is ReferenceType too.
    key = max((place.key for place in candidates if place.module == home), key=lambda key: (len(key), key))
    outer = home.removeprefix("_")
    if outer == "io":
        # Up to 3.11 the module called itself io, and its types _io.
        return f"_io.{key}"
    return f"{outer if outer in PUBLIC else home}.{key}"


def like_modules(space: Space, release: Release, types: Iterable[int]) -> list[int]:
    """Return those of ``types`` whose first field is a dict: modules, and a few others. Exceptions are left out."""
    found = []
    for address in types:
        with suppress(Fault):
            flags, offset = space.word(address + release.at(TP_FLAGS)), space.word(address + release.at(TP_DICTOFFSET))
            if offset == release.at(MODULE_DICT) and not flags & (FLAG_EXCEPTION | FLAG_HEAP_TYPE):
                found.append(address)
    return found
