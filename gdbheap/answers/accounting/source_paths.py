"""Rewrite the names of holders as source code writes them, and find the object that a name stands for."""

from __future__ import annotations

import re
from contextlib import suppress
from typing import NamedTuple

from gdbheap.answers.accounting.paths import in_words
from gdbheap.answers.by_root import RootShare, by_root, share_named
from gdbheap.answers.owners import owners
from gdbheap.answers.retained import OBJECT, retained
from gdbheap.contents.python.names.paths import ObjectPaths
from gdbheap.contents.python.objects.reading import dict_lookups
from gdbheap.errors import Fault, Unsupported, UsageError
from gdbheap.graph.paths import Paths
from gdbheap.heap import Heap
from gdbheap.layout.cpython import MODULE_DICT

__all__ = ["NamedHolder", "holder_named", "source_path", "variable_of_module"]

MODULE = re.compile(r"sys\.modules\['((?:[^\W\d]\w*\.)*[^\W\d]\w*)'\]\.")
MAIN = "__main__."
MODULES_IN_WORDS = "sys.modules ["
# The most blocks among which the largest one of a static variable is searched.
MOST_SEARCHED = 10_000
# Python 2 has names as byte strings.
OF_PYTHON_2 = re.compile(r"\[str\(b('[^']*')\)\]")
OF_DICT = re.compile(r"\.__dict__\['([^\W\d]\w*)'\]")


# The path from a running function to a variable of a coroutine that it runs. The coroutine's own function is enough to
# name the variable.
TO_COROUTINE = re.compile(r"\Alocal variable .*\.cr_frame ?: (?=local variable )")
# The spaces between steps of a path, which do not exist in source code, and the step into C code.
STEPS, INTO_C = re.compile(r"(?<=[\]\w]) (?=[\[.])"), " holds it"


def source_path(name: str) -> str:
    """Return a path as source code writes it, beginning with the module: ``app.cache`` instead of
    ``sys.modules['app'].cache``.

    If the path is in words, only its beginning is changed. A variable of a coroutine is named by the coroutine's
    function."""
    name = OF_PYTHON_2.sub(r"[\1]", TO_COROUTINE.sub("", name))
    if name.startswith(MODULES_IN_WORDS):
        head, holds, rest = name.partition(INTO_C)
        start = OF_DICT.sub(r".\1", STEPS.sub("", head))
        return f"{source_path(start)}{'' if rest.startswith(',') else holds}{rest}"
    name = MODULE.sub(lambda found: "" if found[1] == "__main__" else f"{found[1]}.", name)
    name = name[len(MAIN) :] if name.startswith(MAIN) else name
    return OF_DICT.sub(r".\1", name)


class NamedHolder(NamedTuple):
    """The object or variable that a name stands for. ``share``: the blocks of a static or thread-local variable of C or
    C++; None for an object of Python, or if there is no such variable. ``address``: the object, or the variable's
    largest block.
    """

    address: int
    share: RootShare | None


def holder_named(heap: Heap, name: str) -> NamedHolder:
    """Return the object or variable that ``name`` names.

    ``name``: a variable of a Python module, or a path that ``heap owners``, ``heap retained`` or the overview prints. A
    static variable of a program without Python stands for the largest block that it reaches. Raises UsageError if
    nothing has this name or if it is not a single object; Unsupported if holders cannot be found.
    """
    is_cut, has_objects = heap.references.graph.is_cut, isinstance(heap.paths, ObjectPaths)
    shares = [] if has_objects or is_cut else by_root(heap, 0)
    share = share_named(shares, name)
    held: list[int | None] = [None for each in shares if _is_name(each.name, name)]
    if has_objects:
        held = [row.address for row in owners(heap, None, None).groups if _is_name(row.root, name)]
    found = _first(held)
    if found is None and not is_cut:
        every = [each for row in retained(heap, OBJECT, None).rows for each in (row, *row.inner)]
        held += [row.address for row in every if _is_name(row.path, name) or _is_name(row.chain, name)]
        found = _first(held)
    found = _of_modules(heap, name) if found is None else found
    found = _of_largest(heap, name, share) if found is None else found
    if found is not None:
        return NamedHolder(found, share)
    if held:
        raise UsageError(f"{name!r} is not a single object with an address: 'heap owners' shows what it holds")
    raise UsageError(f"{name!r} is neither an address (0x7f00…) nor a holder's name, as 'heap owners' prints it")


def _is_name(path: str | None, name: str) -> bool:
    """Return whether ``name`` equals ``path``, either as an answer prints the path or as source code writes it."""
    return path is not None and name in (path, source_path(path))


def _first(addresses: list[int | None]) -> int | None:
    return next((address for address in addresses if address is not None), None)


def _of_modules(heap: Heap, name: str) -> int | None:
    """Return the address of the object in a variable of a Python module; None if no module has this variable."""
    module, _dot, variable = source_path(name).rpartition(".")
    return variable_of_module(heap.paths, module or MAIN[:-1], variable)


def variable_of_module(paths: Paths, module: str, variable: str) -> int | None:
    """Return the address of the object in a variable of the Python module named ``module``; None if it is unknown."""
    if not isinstance(paths, ObjectPaths):
        return None
    objects, threads = paths.references.objects, paths.references.threads
    space, release, lookups = objects.target.space, objects.release, objects.names.lookups
    for _interpreter, loaded in threads.modules():
        with suppress(Fault, Unsupported, OverflowError):
            found = dict_lookups(space, release, loaded, (module,), lookups).get(module)
            names = 0 if found is None else space.word(found + release.at(MODULE_DICT))
            value = dict_lookups(space, release, names, (variable,), lookups).get(variable) if names else None
            if value is not None:
                return value
    return None


def _of_largest(heap: Heap, name: str, share: RootShare | None) -> int | None:
    """Return the address of the largest block that the static variable or stack ``name`` reaches. If a variable reaches
    no large block, return the largest block to which it points. None if there is no such variable or stack.
    """
    paths, graph = heap.paths, heap.references.graph
    if isinstance(paths, ObjectPaths):
        return None
    starts = set() if share is None else set(share.nodes)
    roots = (f"{name.partition(': ')[0]} ", f"'{name}' in ")
    for row in graph.largest(0, MOST_SEARCHED).rows:
        chain = graph.chain(row.id)
        is_below = starts.intersection(chain) if starts else f"{in_words(paths.path(chain))} ".startswith(roots)
        if is_below:
            return heap.references.node(row.id).block
    nodes = heap.references.nodes(list(starts))
    targets = [edge.target for node in nodes if node.root is not None for edge in graph.edges(node.id)]
    reached = [*heap.references.nodes(targets), *(node for node in nodes if node.root is None)]
    return max(reached, key=lambda node: node.size).block if reached else None
