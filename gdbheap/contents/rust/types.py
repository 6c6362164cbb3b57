"""Recognise programs in Rust, and find the types of the objects to which trait pointers point.

rustc puts the paths of the standard library's sources into each program that can panic. The paths remain after symbols
are stripped: ``/rustc/59807616e1fa…/library/core/src/…``, or Debian's ``/usr/src/rustc-1.63.0/library/…``. A vtable has
no symbol of its own; its type is known by the symbols of its functions.
"""

from __future__ import annotations

import re
from collections import defaultdict

from gdbheap import _native
from gdbheap.targets.target import Target
from gdbheap.targets.text_search import mentions

SOURCES = re.compile(rb"/rustc(/[0-9a-f]{40}|-[0-9.]{1,20})/(library|src)/\w")
TEXTS = {
    "rust string": "String or Vec<u8> text",
    "rust vec": "Vec or boxed slice items",
    "rust deque": "VecDeque items",
    "rust vec or deque": "Vec or VecDeque items",
    "rust table": "HashMap or HashSet table",
    "rust tree": "BTreeMap or BTreeSet node",
    "rust box": "Box<dyn Trait> object",
    "rust counted": "Arc<dyn Trait> or Rc<dyn Trait> object",
    "rust object": "Box, Arc or Rc<dyn Trait> object",
    "rust shared": "Arc or Rc object",
    "rust channel": "channel (std::sync::mpsc or crossbeam)",
    "rust messages": "channel messages, 31 in a block",
}
OF_TYPE = {
    "rust box": "Rust object of type {}",
    "rust counted": "Rust object of type {} in an Arc or Rc",
    "rust object": "Rust object of type {}",
}
WITH_VTABLES = frozenset(OF_TYPE)
OF_CHANNEL = {
    "rust channel": "channel with {} messages waiting (std::sync::mpsc or crossbeam)",
    "rust messages": "messages of a channel with {} waiting, 31 in a block",
}
_DROP = re.compile(r"core::ptr::drop_(?:in_place|glue)<(.+)>(?: \[[^\[\]]*\])?")
_METHOD = re.compile(r"\A<(.+) as (?:(?! as ).)+>::\w+")
_FIRST_METHOD, _MOST_WORDS = 3, 32
_LEAST_FUNCTIONS = 2


def is_rust(target: Target) -> bool:
    """Return whether the program itself, and not only one of its libraries, is written in Rust."""
    return bool(target.objects) and mentions(target, target.objects[0], SOURCES)


def types_of(target: Target, vtables: dict[str, int]) -> dict[str, str]:
    """Return the type of each vtable, by the keys of ``vtables``. Vtables whose type is not shown by symbols are left
    out.

    An optimising compiler merges functions with the same code under the name of one of them. For example, a struct and
    its only field with a destructor are often dropped by the same function. Therefore at least two functions must name
    the type, and no method may name another type.
    """
    functions = {name: _functions(target, vtable) for name, vtable in vtables.items()}
    wanted = {function for each in functions.values() for function in each}
    names: dict[int, set[str]] = defaultdict(set)
    for address in wanted:
        loaded = target.object_of(address)
        for name in loaded.names_at(address) if loaded is not None else ():
            if name.startswith(("_ZN", "_R")):
                names[address].add(_native.demangle(name) or name)
    found = {name: _agreed([names.get(each, set()) for each in words]) for name, words in functions.items()}
    return {name: type_name for name, type_name in found.items() if type_name is not None}


def _functions(target: Target, vtable: int) -> list[int]:
    """Return the addresses of a vtable's first function, which drops the object, and of its possible methods."""
    word = target.machine.word
    raw = target.space.read_available(vtable, _MOST_WORDS * word)
    words = [each for (each,) in target.machine.structure("P").iter_unpack(raw[: len(raw) - len(raw) % word])]
    return words[:1] + words[_FIRST_METHOD:]


def _agreed(names: list[set[str]]) -> str | None:
    """Return the type that the methods of a vtable name; None if they name several types or too few functions name it.

    ``names``: the names of each function, beginning with the drop function. The methods end at the next drop function,
    or at a function without a name.
    """
    dropped, methods = _type(names[0], _DROP) if names else None, []
    for each in names[1:]:
        if _type(each, _DROP) or not each:
            break
        methods.append(_type(each, _METHOD))
    types = {method for method in methods if method}
    if len(types) != 1:
        return None
    name = types.pop()
    return name if methods.count(name) + (dropped == name) >= _LEAST_FUNCTIONS else None


def _type(names: set[str], pattern: re.Pattern[str]) -> str | None:
    """Return the type in a function's name; None if the function has several names, or if the name contains no type."""
    if len(names) != 1:
        return None
    found = pattern.fullmatch(next(iter(names)))
    return found[1] if found else None
