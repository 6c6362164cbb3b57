"""Report a shell's command line that cannot be answered."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["refuse"]


def refuse(message: str, words: Sequence[str], status: int = 1, steps: Sequence[str] = ()) -> int:
    """Report the error of a command line as one line on standard error. If the line asks for JSON, also write it with
    the next steps as the only document to standard output. Return ``status``."""
    from gdbheap.commands.shell.streams import complain, has_printed, told, wants_json, write

    if wants_json(words) and not has_printed():
        try:
            from gdbheap.commands.shell.commands import called
            from gdbheap.report.formats.json import error_document, text_of

            write(text_of(error_document(called(words), status, told(message), list(map(told, steps)))))
        except Exception:
            # The line on standard error reports the error. If this document cannot be written, no further line is
            # needed.
            pass
    return complain(message, status)
