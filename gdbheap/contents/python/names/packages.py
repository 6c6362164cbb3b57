"""Assign each object to its home: the package, library, frame or thread to which it belongs. This is done before
references are followed.

Modules, classes and functions belong to the package in which they were written, static data to its library. A closure
belongs to the home of the object that keeps it. Each running frame is a home itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import NamedTuple

from gdbheap.contents.python.names.type_names import TypeNames
from gdbheap.contents.python.objects.reading import dict_lookups, read_name
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
    "LoadedModule",
    "loaded_modules",
    "modules",
    "modules_of_files",
    "namespaces",
]

# The kinds of homes.
PACKAGE, STANDARD, FRAME, LIBRARY, THREAD, INTERPRETER_ITSELF, ONE_FILE = (
    "package", "standard library", "frame", "library", "thread", "interpreter", "modules",
)  # fmt: skip
MAX_NAME_LENGTH = 200
# If one file was loaded as at least this many modules, these modules are one holder.
MIN_OF_FILE = 4
MAX_PATH_LENGTH = 4000
NAME, FILE, SPEC = "__name__", "__file__", "__spec__"
BUILTINS = ("builtins", "__builtin__")
# Modules that are part of the interpreter, by the names that they have at its start.
FROZEN = ("_frozen_importlib", "_frozen_importlib_external")
# The folder of the standard library's extension modules.
DYNAMIC = "/lib-dynload/"
INSTALLED = ("/site-packages/", "/dist-packages/")
FUNCTION, CELL, DICT = "function", "cell", "dict"


class Home(NamedTuple):
    """The home of objects: the package, frame, library or other holder to which they belong.

    ``kind``: one of the constants of this module for kinds of homes. ``name``: the name of the package, frame, file or
    thread; "" for other kinds.
    """

    kind: str
    name: str


class LoadedModule(NamedTuple):
    """A module, its dict, its name ("?" if it is unknown) and its file.

    ``is_made``: whether the program itself created the module, which then has no spec. In Python 2 this is unknown.
    """

    node: Node
    names: Node
    name: str
    file: str | None
    is_made: bool


class Homes:
    """The homes of a graph's nodes.

    ``seeds``: {node: home} of nodes whose own contents determine their home.
    ``open``: nodes whose dict is a part of them, such as classes.
    ``through``: the addresses of the types of such dicts.
    ``own_modules``: the nodes of the interpreter's own modules, such as builtins, and of their dicts. Programs may add
    variables to these modules.
    """

    def __init__(self, references: PythonNodes) -> None:
        """Find the homes of nodes. Raises Unsupported if the tables of the release lack a field."""
        self._references = references
        self._names: TypeNames = references.objects.names
        graph = references.graph
        kinds: dict[str, list[int]] = {}
        for address in graph.type_addresses():
            kinds.setdefault(self._names.name(address), []).append(address)
        self.through = set(kinds.get(DICT, []))
        found = list(loaded_modules(references))
        self._packages = self._known_packages(found)
        self._libraries = dict(self._of_packages())
        self.seeds: dict[int, Home] = dict(self._roots())
        of_dicts: dict[int, Home] = {}
        for module in found:
            self.seeds[module.node.id] = of_dicts[module.names.id] = self._home(module.name)
        self.seeds |= of_dicts
        own_places = {number for module in found for number in (module.node.id, module.names.id)}
        self.own_modules = {number for number in own_places if self.seeds[number].kind == INTERPRETER_ITSELF}
        classes = dict(self._classes())
        own = {number for number, home in of_dicts.items() if home.kind != INTERPRETER_ITSELF}
        cells = set(kinds.get(CELL, []))
        rows = (row for kind in kinds.get(FUNCTION, []) for row in graph.homes(kind, own, cells))
        functions = {number: of_dicts[home] for number, home in rows}
        self.seeds |= functions | classes
        self.open = {*functions, *classes}

    def _roots(self) -> Iterator[tuple[int, Home]]:
        for number, root in enumerate(self._references.roots, self._references.first_root):
            yield number, self._home_of_root(root)

    def _known_packages(self, found: list[LoadedModule]) -> dict[str, Home]:
        """Return the home of each top-level module or package by its name. Usually this is the package itself.

        Modules in the folder of the module ``os``, and imported modules that have no file, belong to the standard
        library."""
        files = {module.name: module.file for module in found if "." not in module.name}
        base = (files.get("os") or "").rpartition("/")[0]
        made = {module.name for module in found if module.is_made}
        homes = {}
        for name, file in files.items():
            own = name not in made if not file else base and _is_below(file, base)
            homes[name] = Home(STANDARD, "") if own and name != "__main__" else Home(PACKAGE, name)
        for file, rows in modules_of_files(found).items():
            home = Home(ONE_FILE, f"{len(rows):,} modules of {file}")
            homes |= {one.name: home for one in rows if one.name in files and homes[one.name].kind == PACKAGE}
        return homes | {name: Home(INTERPRETER_ITSELF, "") for name in BUILTINS}

    def _home(self, module: str, is_static: bool = False) -> Home:
        """Return the home of a module: its package, the standard library or the interpreter. ``is_static``: the
        module's name comes from a static type, so the module may never have been imported.
        """
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
        """Yield (file name, home) of each shared library in the folder of a package or of the standard library.

        The home is that package, or the standard library.
        """
        for loaded in self._references.objects.target.objects:
            name = loaded.path.rpartition("/")[2]
            for part in INSTALLED:
                package = loaded.path.partition(part)[2].partition("/")[0].partition(".")[0]
                if package in self._packages:
                    yield name, self._packages[package]
            if DYNAMIC in loaded.path:
                yield name, Home(STANDARD, "")


def modules(references: PythonNodes) -> Iterator[tuple[Node, Node, str]]:
    """Yield (node of the module, node of its dict, name of the module) for each module. The name is "?" if it is
    unknown.
    """
    for module in loaded_modules(references):
        yield module.node, module.names, module.name


def loaded_modules(references: PythonNodes) -> Iterator[LoadedModule]:
    """Yield each module with its dict, its name ("?" if unknown) and its file (None if unknown)."""
    objects = references.objects
    space, release = objects.target.space, objects.release
    for module, names in namespaces(references):
        name = file = None
        is_made = False
        with suppress(Fault, Unsupported):
            found = dict_lookups(space, release, names.address, (NAME, FILE, SPEC), objects.names.lookups)
            is_made = SPEC in found and objects.type_at(found[SPEC]) == "NoneType"
            name = read_name(space, release, found[NAME], MAX_NAME_LENGTH) if NAME in found else None
            file = read_name(space, release, found[FILE], MAX_PATH_LENGTH) if FILE in found else None
        yield LoadedModule(module, names, name or "?", file, is_made)


def namespaces(references: PythonNodes) -> Iterator[tuple[Node, Node]]:
    """Yield (node of the module, node of its dict) for each module."""
    names, graph = references.objects.names, references.graph
    kinds = [address for address in graph.type_addresses() if names.name(address) == "module"]
    space, place = references.objects.target.space, references.objects.release.at(MODULE_DICT)
    for module in references.nodes([number for kind in kinds for number in graph.objects_of(kind)]):
        with suppress(Fault):
            node = references.find(space.word(module.address + place))
            if node is not None:
                yield module, node


def modules_of_files(found: Iterable[LoadedModule]) -> dict[str, list[LoadedModule]]:
    """Return {file: its modules} for each file that was loaded as at least MIN_OF_FILE modules."""
    by_file: dict[str, list[LoadedModule]] = {}
    for module in found:
        if module.file:
            by_file.setdefault(module.file, []).append(module)
    return {file: rows for file, rows in by_file.items() if len(rows) >= MIN_OF_FILE}


def _is_below(file: str, base: str) -> bool:
    """Return whether a file is below ``base``, the folder of the standard library, but not in its site-packages."""
    return file.startswith(f"{base}/") and not any(part in file for part in INSTALLED)
