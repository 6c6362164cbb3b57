"""gdbheap shows where a process's memory went. A program that uses the library first calls ``gdbheap.open``
(docs/library.md).

Each name of the library is imported when it is first used, so that the commands and gdb import none of them.
docs/architecture.md lists the packages in order; each package imports only packages before it in that list.
"""

from __future__ import annotations

__version__ = "0.2.0"
# setup.py writes the commit into a built package. It stays empty if git does not report a commit.
__commit__ = ""

# Importing the module typing takes as long as a short command, so it is not imported at run time.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from gdbheap.api.comparing import Change as Change
    from gdbheap.api.comparing import Difference as Difference
    from gdbheap.api.comparing import diff as diff
    from gdbheap.api.heap import Heap as Heap
    from gdbheap.api.inside import Saved as Saved
    from gdbheap.api.inside import snapshot as snapshot
    from gdbheap.api.inside import write_report as write_report
    from gdbheap.api.opening import here as here
    from gdbheap.api.opening import open as open
    from gdbheap.api.rows import Block as Block
    from gdbheap.api.rows import Finding as Finding
    from gdbheap.api.rows import Holder as Holder
    from gdbheap.api.rows import Hole as Hole
    from gdbheap.api.rows import Object as Object
    from gdbheap.api.rows import Owner as Owner
    from gdbheap.api.rows import Referrer as Referrer
    from gdbheap.api.rows import Retained as Retained
    from gdbheap.api.rows import TypeRow as TypeRow
    from gdbheap.api.sampling import Sample as Sample
    from gdbheap.api.sampling import sample as sample
    from gdbheap.api.table import Table as Table
    from gdbheap.errors import GdbheapError as GdbheapError
    from gdbheap.errors import NoTarget as NoTarget
    from gdbheap.errors import NotPermitted as NotPermitted
    from gdbheap.errors import Unsupported as Unsupported
    from gdbheap.errors import UsageError as UsageError

# The module of each name of the library.
_PLACES = {
    "api.opening": ("open", "here"),
    "api.comparing": ("diff", "Difference", "Change"),
    "api.sampling": ("sample", "Sample"),
    "api.inside": ("snapshot", "write_report", "Saved"),
    "api.heap": ("Heap",),
    "api.table": ("Table",),
    "api.rows": ("Block", "Finding", "Holder", "Hole", "Object", "Owner", "Referrer", "Retained", "TypeRow"),
    "errors": ("GdbheapError", "NoTarget", "NotPermitted", "Unsupported", "UsageError"),
}
_MODULES = {name: module for module, names in _PLACES.items() for name in names}
__all__ = [
    "Block",
    "Change",
    "Difference",
    "Finding",
    "GdbheapError",
    "Heap",
    "Holder",
    "Hole",
    "NoTarget",
    "NotPermitted",
    "Object",
    "Owner",
    "Referrer",
    "Retained",
    "Sample",
    "Saved",
    "Table",
    "TypeRow",
    "Unsupported",
    "UsageError",
    "__version__",
    "diff",
    "here",
    "open",
    "sample",
    "snapshot",
    "write_report",
]


def __getattr__(name: str) -> object:
    """Return a name of the library, imported when it is first used. Raises AttributeError for any other name."""
    if name not in _MODULES:
        raise AttributeError(f"module 'gdbheap' has no attribute {name!r}")
    from importlib import import_module

    try:
        found: object = getattr(import_module(f"gdbheap.{_MODULES[name]}"), name)
    except ImportError as error:
        if "_native" not in str(error):
            raise
        # If Python was started in a checkout, the checkout's own folder comes first.
        place = __path__[0]
        raise ImportError(f"{place} has gdbheap's sources, but not its native module: start Python elsewhere") from None
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
