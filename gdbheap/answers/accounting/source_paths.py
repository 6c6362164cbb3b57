"""Convert names of holders to the form that source code has, and find the objects that they name."""

from __future__ import annotations

import re

from gdbheap.answers.owners import owners
from gdbheap.errors import UsageError
from gdbheap.heap import Heap

__all__ = ["address_named", "source_path"]

MODULE = re.compile(r"sys\.modules\['((?:[^\W\d]\w*\.)*[^\W\d]\w*)'\]\.")
MAIN = "__main__."
MODULES_IN_WORDS = "sys.modules ["
# Python 2 has names as byte strings.
OF_PYTHON_2 = re.compile(r"\[str\(b('[^']*')\)\]")
OF_DICT = re.compile(r"\.__dict__\['([^\W\d]\w*)'\]")


# The way from a running function to a variable of a coroutine that it runs: the variable is known by its own function.
TO_COROUTINE = re.compile(r"\Alocal variable .*\.cr_frame ?: (?=local variable )")
# The spaces between steps of a path, which do not exist in source code, and the step into C code.
STEPS, INTO_C = re.compile(r"(?<=[\]\w]) (?=[\[.])"), " holds it"


def source_path(name: str) -> str:
    """Return a path as source code would write it, beginning with the module.

    If the path is in words, only its beginning is changed. A variable of a coroutine is named by the coroutine's
    function.
    """
    name = OF_PYTHON_2.sub(r"[\1]", TO_COROUTINE.sub("", name))
    if name.startswith(MODULES_IN_WORDS):
        head, holds, rest = name.partition(INTO_C)
        start = OF_DICT.sub(r".\1", STEPS.sub("", head))
        return f"{source_path(start)}{'' if rest.startswith(',') else holds}{rest}"
    name = MODULE.sub(lambda found: "" if found[1] == "__main__" else f"{found[1]}.", name)
    name = name[len(MAIN) :] if name.startswith(MAIN) else name
    return OF_DICT.sub(r".\1", name)


def address_named(heap: Heap, name: str) -> int:
    """Return the address of the object that is a holder, given the name that ``heap owners`` or the overview prints.

    Raises UsageError if no such holder exists or it is not a single object; Unsupported if holders cannot be found.
    """
    rows = [row for row in owners(heap, None, None).groups if row.root and name in (row.root, source_path(row.root))]
    for row in rows:
        if row.address is not None:
            return row.address
    if rows:
        raise UsageError(f"{name!r} is not a single object with an address: 'heap owners' shows what it holds")
    raise UsageError(f"{name!r} is neither an address (0x7f00…) nor a holder's name, as 'heap owners' prints it")
