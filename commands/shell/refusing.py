"""Refuses a command line of a shell that cannot be answered."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["refuse"]


def refuse(message: str, words: Sequence[str], status: int = 1) -> int:
    """Say what ended a command line: one line on standard error, and where it asks for JSON the document of the error,
    which is the only one on standard output. Returns ``status``."""
    from gdbheap.commands.shell.streams import complain, has_printed, told, wants_json, write

    if wants_json(words) and not has_printed():
        try:
            from gdbheap.commands.shell.commands import called
            from gdbheap.report.formats.json import error_document, text_of

            write(text_of(error_document(called(words), status, told(message))))
        except Exception:
            # The line below says what is wrong; that nobody reads, or that memory is short, is no reason for another.
            pass
    return complain(message, status)
