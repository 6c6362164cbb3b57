"""Draw answers that are trees: write a tree to files for other programs, or print it instead of the answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from gdbheap.commands.surface.options import Pictured
from gdbheap.files import replacing

if TYPE_CHECKING:
    from gdbheap.report.formats.flame import Subject
    from gdbheap.stacks import Weighted

__all__ = ["draw"]


def draw(
    options: Pictured,
    tree: Sequence[Weighted],
    title: str,
    subject: Subject | None = None,
    profile: Callable[[], bytes] | None = None,
) -> None:
    """Write or print the tree, as the options ask.

    ``subject``: what the weights count, None for memory; ``profile``: a function that makes the file for pprof, None to
    make that file from the tree. Raises UsageError if a file cannot be written.
    """
    # Imported on use: imports take most of a command's start-up time.
    from gdbheap.report.formats.composition import MEMORY
    from gdbheap.report.formats.stack_files import FORMATS, Drawing

    drawing = Drawing(tree, title, subject or MEMORY, profile)
    for form, path in options.pictures.items():
        with replacing(path, options.mode) as stream:
            stream.writelines(FORMATS[form](drawing))
    if options.prints_tree and options.form is not None:
        options.printed = b"".join(FORMATS[options.form](drawing)).decode()
