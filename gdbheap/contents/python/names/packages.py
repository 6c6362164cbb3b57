"""Assign objects to their homes, such as packages, before references are followed.

Modules, classes and functions belong to the package in which they were written, static data to its library. Each
running frame is a home itself."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import NamedTuple

from gdbheap.contents.python.names.type_names import TypeNames
from gdbheap.contents.python.objects.reading import dict_lookup, read_name
from gdbheap.contents.python.objects.references import BY_STACKS, MODULES, STATIC_TYPES, PythonNodes, PythonRoot
from gdbheap.contents.python.objects.roots import INTERPRETER, THREADS
from gdbheap.errors import Fault, Unsupported
from gdbheap.graph.nodes import Node
from gdbheap.layout.cpython import FLAG_TYPE, MODULE_DICT

__all__ = [
    "DICT",
    "FRAME",
    "INTERPRETER_ITSELF",
    "LIBRARY",
    "ONE_FILE",
    "PACKAGE",
    "STANDARD",
    "THREAD",
    "Home",
    "Homes",
    "modules",
    "modules_of_files",
    "namespaces",
]

# The kinds of homes.
PACKAGE, STANDARD, FRAME, LIBRARY, THREAD, INTERPRETER_ITSELF, ONE_FILE = (
    "package", "standard library", "frame", "library", "thread", "interpreter", "modules",
)  # fmt: skip
MAX_NAME_LENGTH = 200
# The modules of a file are one holder if the file was loaded as at least this many modules.
MIN_OF_FILE = 4
MAX_PATH_LENGTH = 4000
BUILTINS = ("builtins", "__builtin__")
# Modules that are part of the interpreter, by the names that they have at its start.
FROZEN = ("_frozen_importlib", "_frozen_importlib_external")
# The folder of the standard library's extension modules.
DYNAMIC = "/lib-dynload/"
INSTALLED = ("/site-packages/", "/dist-packages/")
FUNCTION, DICT = "function", "dict"


class Home(NamedTuple):
    """The owner of objects. ``kind``: one of the kinds above. ``name``: the name of the package, frame, file or thread;
    "" for other kinds."""

    kind: str
    name: str


class Homes:
    """The homes of a graph's nodes.

    ``seeds``: the home of each node that has one by itself. ``open``: nodes whose dict is a part of them, such as
    classes. ``through``: the addresses of the types of such dicts."""

    def __init__(self, references: PythonNodes) -> None:
        """Find the homes of nodes. Raises Unsupported if the tables of the release lack a field."""
        self._references = references
        self._names: TypeNames = references.objects.names
        graph = references.graph
        kinds: dict[str, list[int]] = {}
        for address in graph.type_addresses():
            kinds.setdefault(self._names.name(address), []).append(address)
        self.through = set(kinds.get(DICT, []))
        found = list(modules(references))
        self._packages = self._known_packages(found)
        self._libraries = dict(self._of_packages())
        self.seeds: dict[int, Home] = dict(self._roots())
        of_dicts: dict[int, Home] = {}
        for module, names, name in found:
            home = self._home(name)
            self.seeds[module.id] = of_dicts[names.id] = home
        self.seeds |= of_dicts
        classes = dict(self._classes())
        own = {number for number, home in of_dicts.items() if home.kind != INTERPRETER_ITSELF}
        functions = {
            number: of_dicts[home] for kind in kinds.get(FUNCTION, []) for number, home in graph.homes(kind, own)
        }
        self.seeds |= functions | classes
        self.open = {*functions, *classes}

    def _roots(self) -> Iterator[tuple[int, Home]]:
        for number, root in enumerate(self._references.roots, self._references.first_root):
            yield number, self._home_of_root(root)

    def _known_packages(self, found: list[tuple[Node, Node, str]]) -> dict[str, Home]:
        """Return the homes of packages by name.

        Modules in the folder of the module ``os`` are the standard library, and so are imported modules that have no
        file."""
        files = {
            name: _text(self._references, names, "__file__", MAX_PATH_LENGTH)
            for _module, names, name in found
            if "." not in name
        }
        base = (files.get("os") or "").rpartition("/")[0]
        made = {name for _module, names, name in found if _is_made(self._references, names)}
        homes = {}
        for name, file in files.items():
            own = name not in made if not file else base and _is_below(file, base)
            homes[name] = Home(STANDARD, "") if own and name != "__main__" else Home(PACKAGE, name)
        for file, rows in modules_of_files(self._references, found).items():
            home = Home(ONE_FILE, f"{len(rows):,} modules of {file}")
            homes |= {name: home for _module, _names, name in rows if name in files and homes[name].kind == PACKAGE}
        return homes | {name: Home(INTERPRETER_ITSELF, "") for name in BUILTINS}

    def _home(self, module: str, is_static: bool = False) -> Home:
        """Return the home of a module. ``is_static``: the module's name comes from a static type, so the module may
        never have been imported."""
        name = module.partition(".")[0]
        if name in self._packages:
            return self._packages[name]
        return Home(INTERPRETER_ITSELF, "") if is_static or name in FROZEN else Home(PACKAGE, name)

    def _classes(self) -> Iterator[tuple[int, Home]]:
        graph = self._references.graph
        for address in graph.type_addresses():
            if self._names.flags(address) & FLAG_TYPE:
                for node in self._references.nodes(graph.objects_of(address)):
                    yield node.id, self._home_of_class(node.address)
        for address in self._references.objects.static_types():
            number = graph.find(address)
            if number is not None:
                yield number, self._home_of_class(address, is_static=True)

    def _home_of_class(self, address: int, is_static: bool = False) -> Home:
        module, dot, _rest = self._names.name(address).partition(".")
        return self._home(module, is_static) if dot else Home(INTERPRETER_ITSELF, "")

    def _home_of_root(self, root: PythonRoot) -> Home:
        if root.is_running:
            return Home(FRAME, root.name)
        if root.is_registered:
            return Home(STANDARD, "")
        if root.name in (MODULES, STATIC_TYPES, INTERPRETER):
            return Home(INTERPRETER_ITSELF, "")
        if root.phase == BY_STACKS or root.name == THREADS:
            return Home(THREAD, "")
        return self._libraries.get(root.name, Home(LIBRARY, root.name))

    def _of_packages(self) -> Iterator[tuple[str, Home]]:
        """Yield (name of a library, home) for each library in the folder of a package or of the standard library."""
        for loaded in self._references.objects.target.objects:
            name = loaded.path.rpartition("/")[2]
            for part in INSTALLED:
                package = loaded.path.partition(part)[2].partition("/")[0].partition(".")[0]
                if package in self._packages:
                    yield name, self._packages[package]
            if DYNAMIC in loaded.path:
                yield name, Home(STANDARD, "")


def modules(references: PythonNodes) -> Iterator[tuple[Node, Node, str]]:
    """Yield (module, its dict, its name) for each module; the name is "?" if unknown."""
    for module, names in namespaces(references):
        yield module, names, _text(references, names, "__name__", MAX_NAME_LENGTH) or "?"


def namespaces(references: PythonNodes) -> Iterator[tuple[Node, Node]]:
    """Yield (module, its dict) for each module."""
    names, graph = references.objects.names, references.graph
    kinds = [address for address in graph.type_addresses() if names.name(address) == "module"]
    space, place = references.objects.target.space, references.objects.release.at(MODULE_DICT)
    for module in references.nodes([number for kind in kinds for number in graph.objects_of(kind)]):
        with suppress(Fault):
            node = references.find(space.word(module.address + place))
            if node is not None:
                yield module, node


def modules_of_files(
    references: PythonNodes, found: Iterable[tuple[Node, Node, str]]
) -> dict[str, list[tuple[Node, Node, str]]]:
    """Return, by file, the modules of each file that was loaded as at least MIN_OF_FILE modules."""
    by_file: dict[str, list[tuple[Node, Node, str]]] = {}
    for module, names, name in found:
        file = _text(references, names, "__file__", MAX_PATH_LENGTH)
        if file:
            by_file.setdefault(file, []).append((module, names, name))
    return {file: rows for file, rows in by_file.items() if len(rows) >= MIN_OF_FILE}


def _is_below(file: str, base: str) -> bool:
    """Return whether a file belongs to the standard library, whose folder is ``base``."""
    return file.startswith(f"{base}/") and not any(part in file for part in INSTALLED)


def _is_made(references: PythonNodes, names: Node) -> bool:
    """Return whether the program made a module itself: such a module has no spec. In Python 2 this is unknown."""
    objects = references.objects
    with suppress(Fault, Unsupported):
        spec = dict_lookup(objects.target.space, objects.release, names.address, "__spec__", objects.names.lookups)
        return spec is not None and objects.type_at(spec) == "NoneType"
    return False


def _text(references: PythonNodes, names: Node, key: str, limit: int) -> str | None:
    space, release = references.objects.target.space, references.objects.release
    with suppress(Fault, Unsupported):
        found = dict_lookup(space, release, names.address, key, references.objects.names.lookups)
        return None if found is None else read_name(space, release, found, limit)
    return None
