"""How a report is to look: exact or rounded sizes, width, bold headings, few colours, and the RSS that shares refer
to."""

from __future__ import annotations

import os
import sys

from gdbheap.report.text.numbers import share_text, size_text
from gdbheap.text import IN_GDB, as_typed, printable_lines

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TextIO

__all__ = [
    "COLOURS", "FAULT", "PLAIN", "SEVERE", "SOUND", "Style", "encodable", "style_for",
    "terminal_text",
]  # fmt: skip

BOLD = "\033[1m"
PLAIN = "\033[0m"
# What memory is, and how much a sentence matters, in colours of the terminal's own palette, which its user has chosen
# for a light or a dark ground. Those that are pale on one of them (yellow, blue, white, black) are left out.
SEVERE, FAULT, SOUND = "severe", "fault", "sound"
COLOURS = {
    "used": "\033[32m", "free": "\033[31m", "top": "\033[36m", "overhead": "\033[35m",
    SEVERE: "\033[1;31m", FAULT: "\033[31m", SOUND: "\033[32m",
}  # fmt: skip
ESCAPE = "\033"
# Plain, bold, severe, faint, and the palette's colours.
STYLES = tuple(f"[{code}m" for code in ("0", "1", "1;31", "2", *range(31, 37)))
NARROWEST = 20
# Of a sentence's further lines: a name in it cannot begin one.
INDENT = "  "
# What begins a line to paste.
SHELL_PROMPT, GDB_PROMPT = "$ ", "(gdb) "
BLOCK = "█"


class Style:
    """``exact``: sizes in bytes with separators; ``width``: columns of the terminal or None (not cut); ``bold``:
    whether the terminal takes it, and colours; ``rss``: the target's RSS in bytes, or None when it is not known;
    ``private``: that is not all of it, but the resident private memory in a core; ``ascii``: whether it takes no block
    characters; ``command``: what our commands begin with where the report is read."""

    # Written out, as all that every report needs: a dataclass would import more than the rest of a short command.
    __slots__ = ("ascii", "bold", "command", "exact", "private", "rss", "width")

    def __init__(
        self,
        exact: bool = False,
        width: int | None = None,
        bold: bool = False,
        rss: int | None = None,
        private: bool = False,
        ascii: bool = False,
        command: str = IN_GDB,
    ) -> None:
        self.exact, self.width, self.bold = exact, width, bold
        self.rss, self.private, self.ascii, self.command = rss, private, ascii, command

    def of_width(self, width: int | None, bold: bool) -> Style:
        """The same for another width."""
        return Style(self.exact, width, bold, self.rss, self.private, self.ascii, self.command)

    def size(self, size: int | None) -> str:
        """A size for a table's cell or a sentence."""
        return size_text(size, self.exact)

    def bytes(self, size: int | None) -> str:
        """A size for a sentence: an exact one gets its unit, which a table's title says instead."""
        return f"{self.size(size)} bytes" if self.exact and size is not None else self.size(size)

    def share(self, size: int | None, absent: int = 0) -> str:
        """Return a size of blocks in percent of RSS, for a cell: without ``absent`` bytes, which are not resident, and
        unknown where more is left than is resident."""
        return self.share_of_resident(size - absent if self._is_share(size, absent) and size is not None else None)

    def shares_within(self, size: int, absent: int) -> Callable[[int | None], str]:
        """Return what tells the shares of parts of ``size`` bytes, of which nobody knows which of them have the
        ``absent`` bytes that are not resident: then these are unknown."""
        return (lambda _size: "?") if self.differs(size, absent) else self.share

    def share_of_resident(self, size: int | None) -> str:
        """Return resident bytes in percent of RSS, for a cell."""
        return share_text(size, self.rss)

    def of_rss(self, size: int | None, absent: int = 0) -> str:
        """Return " (12.3 % of RSS)" of a size of blocks, for a sentence; nothing where ``share`` is unknown. Where the
        share is another one than that of the size, what is resident stands before it."""
        if size is None or not self._is_share(size, absent):
            return ""
        share = self.resident_of_rss(size - absent)
        return f" ({self.bytes(size - absent)} resident, {share[2:]}" if self.differs(size, absent) else share

    def differs(self, size: int | None, absent: int) -> bool:
        """Return whether the share of RSS is another one than that of all ``size`` bytes of blocks, of which ``absent``
        are not resident: then what is resident stands beside it."""
        if size is None or not self.rss or absent <= 0:
            return False
        return self.share_of_resident(size) != self.share_of_resident(size - absent)

    def resident_of_rss(self, size: int | None) -> str:
        """Return " (12.3 % of RSS)" of resident bytes, for a sentence; nothing when either is not known."""
        whole = "private memory" if self.private else "RSS"
        return f" ({self.share_of_resident(size)} % of {whole})" if self.rss and size is not None else ""

    def _is_share(self, size: int | None, absent: int) -> bool:
        return self.rss is not None and size is not None and size - absent <= self.rss

    def filled(self, text: str) -> str:
        """A sentence, broken into lines where the terminal ends; on one line when there is no terminal."""
        text = self.named(text)
        if self.width is None:
            return text
        import textwrap

        lines = textwrap.wrap(text, max(self.width - 1, NARROWEST), subsequent_indent=INDENT)
        return "\n".join([*lines[:1], *(_no_command(line) for line in lines[1:])])

    def named(self, text: str) -> str:
        """Return a sentence with our commands in quotes as they are typed where it is read."""
        return as_typed(text, self.command)

    def heading(self, text: str) -> str:
        """``text`` in bold where the terminal takes it."""
        return f"{BOLD}{text}{PLAIN}" if self.bold else text

    def coloured(self, text: str, what: str | None) -> str:
        """``text`` in the colour of what it is (a key of COLOURS), where the terminal takes it; plain for all else."""
        colour = COLOURS.get(what or "") if self.bold and text else None
        return f"{colour}{text}{PLAIN}" if colour else text


def _no_command(line: str) -> str:
    """Return a further line of a sentence, which looks like no command to paste, whatever names are in it."""
    words = line.lstrip()
    return f"{INDENT}\\{words}" if words.startswith((SHELL_PROMPT, GDB_PROMPT)) else line


def style_for(
    stream: TextIO | None,
    exact: bool,
    rss: int | None,
    private: bool = False,
    encoding: str | None = None,
    command: str = IN_GDB,
) -> Style:
    """The style for what ``stream`` is: a terminal's width, bold headings and colours; whole and plain if it is none.
    ``encoding``: what is written in, the stream's own unless it is given; ``command``: as in Style."""
    plain = encodable(BLOCK, encoding or getattr(stream, "encoding", None)) != BLOCK
    if not _is_terminal(stream):
        return Style(exact=exact, rss=rss, private=private, ascii=plain, command=command)
    assert stream is not None
    return Style(exact, _columns(stream), _takes_colour(), rss, private, plain, command)


def _is_terminal(stream: TextIO | None) -> bool:
    try:
        return stream is not None and os.isatty(stream.fileno())
    except (OSError, ValueError):
        return False


def _columns(stream: TextIO) -> int | None:
    try:
        columns = os.get_terminal_size(stream.fileno()).columns
    except OSError:
        return None
    return columns or None


def _takes_colour() -> bool:
    return not os.environ.get("NO_COLOR") and os.environ.get("TERM", "dumb") != "dumb"


def terminal_text(text: str, encoding: str | None) -> str:
    """Return lines of ``text`` as they are written to a terminal: ``printable`` but for our own styles, and
    ``encodable``."""
    first, *styled = text.split(ESCAPE)
    return encodable(printable_lines(first) + "".join(map(_styled, styled)), encoding)


def _styled(text: str) -> str:
    """Return an escape character and what follows it; the character stays where a style of ours does."""
    style = next(filter(text.startswith, STYLES), "")
    return ESCAPE + style + printable_lines(text[len(style) :]) if style else printable_lines(ESCAPE + text)


def encodable(text: str, encoding: str | None) -> str:
    """``text`` with what ``encoding`` cannot say as ``\\uXXXX``: names come from a target, terminals from anywhere."""
    name = encoding or sys.getdefaultencoding()
    try:
        return text.encode(name, "backslashreplace").decode(name)
    except LookupError:
        return text.encode("ascii", "backslashreplace").decode("ascii")
