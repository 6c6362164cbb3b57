"""Files of a target whose ELF headers are neither in memory nor on this machine. Their data cannot be interpreted."""

from __future__ import annotations

import os
from collections.abc import Sequence

from gdbheap.dataclass import dataclass
from gdbheap.errors import one_line
from gdbheap.text import named

REMEDY = "--exe=FILE or --sysroot=FOLDER says where to find them"
NAMED = 4
NAME_LIMIT = 60


@dataclass(frozen=True)
class UnseenFile:
    """A program or library mapped at ``base``, by its ``path`` in the target.

    ``other``: a file on this machine that was compared with the mapped one.
    ``refuted``: whether ``other`` is certainly another version. If not, too little of the memory is present to decide.
    """

    path: str
    base: int
    other: str | None = None
    refuted: bool = False

    @property
    def name(self) -> str:
        """The last component of the file's path, on one line."""
        return named(one_line(os.path.basename(self.path), NAME_LIMIT))


def about(unseen: Sequence[UnseenFile]) -> str:
    """Return the names of files whose ELF headers are missing, with the reason and advice. The text follows the word
    "because".
    """
    many = len(unseen) > 1
    files = f"{len(unseen)} files" if many else "a file"
    names = ", ".join(dict.fromkeys(file.name for file in unseen[:NAMED])) + ", …" * (len(unseen) > NAMED)
    return f"the core lacks the ELF headers of {files} ({names}), and {_here(unseen)} ({REMEDY})"


def _here(unseen: Sequence[UnseenFile]) -> str:
    """Return what the search for these files on this machine found: other versions, undecided files, or nothing."""
    refuted = [file.other for file in unseen if file.other is not None and file.refuted]
    doubtful = [file.other for file in unseen if file.other is not None and not file.refuted]
    if refuted:
        more = f" and {len(refuted) - 1} more are other versions" if refuted[1:] else " is another version"
        return f"{one_line(refuted[0], 2 * NAME_LIMIT)}{more}"
    if doubtful:
        if unseen[1:]:
            return "the core has too little of these files to compare them with the files on this machine"
        return "the core has too little of the file to compare it with the file on this machine"
    return "this machine has no such files" if unseen[1:] else "this machine has no such file"
