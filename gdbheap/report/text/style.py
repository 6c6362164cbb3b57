"""The style of a report: exact or rounded sizes, width, bold headings, a few colours, and the RSS for percentages."""

from __future__ import annotations

import os
import sys

from gdbheap.report.text.display_width import SECOND, spread, width_of
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
# Colours for states of memory and for severity. They are from the terminal's own palette, which its user has chosen for
# a light or a dark background. Colours that are pale on one of these backgrounds (yellow, blue, white, black) are not
# used.
SEVERE, FAULT, SOUND = "severe", "fault", "sound"
COLOURS = {
    "used": "\033[32m", "free": "\033[31m", "top": "\033[36m", "overhead": "\033[35m",
    SEVERE: "\033[1;31m", FAULT: "\033[31m", SOUND: "\033[32m",
}  # fmt: skip
ESCAPE = "\033"
# The escapes that gdbheap itself writes: plain, bold, severe, faint, and the palette's colours.
STYLES = tuple(f"[{code}m" for code in ("0", "1", "1;31", "2", *range(31, 37)))
NARROWEST = 20
# The indent of a sentence's second and further lines. Because of it, a name in the sentence cannot begin a line.
INDENT = "  "
# The prompt before a line to paste.
SHELL_PROMPT, GDB_PROMPT = "$ ", "(gdb) "
BLOCK = "█"


class Style:
    """The style of a report.

    ``exact``: print sizes in bytes, with separators.
    ``width``: columns of the terminal, None for no limit.
    ``bold``: the terminal shows bold text and colours.
    ``rss``: the target's RSS in bytes, None if unknown.
    ``private``: ``rss`` counts only the resident private memory; true for a core.
    ``ascii``: the output cannot show block characters.
    ``command``: the first word of gdbheap's commands, as they are typed where the report is read.
    """

    # Not a dataclass, because every report needs this class, and importing dataclasses takes longer than the rest of a
    # short command.
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
        """Return a copy of the style with another width and another ``bold``."""
        return Style(self.exact, width, bold, self.rss, self.private, self.ascii, self.command)

    def size(self, size: int | None) -> str:
        """Return a size for a table's cell or a sentence, exact or rounded; "?" for None (unknown)."""
        return size_text(size, self.exact)

    def bytes(self, size: int | None) -> str:
        """Return a size for a sentence. An exact size gets the unit "bytes", which in a table is in the column's
        title."""
        return f"{self.size(size)} bytes" if self.exact and size is not None else self.size(size)

    def share(self, size: int | None, absent: int = 0) -> str:
        """Return the size of blocks in percent of RSS, for a cell.

        ``absent``: how many of the bytes are not resident; they are subtracted. The share is "?" if the resident bytes
        are more than RSS.
        """
        return self.share_of_resident(size - absent if self._is_share(size, absent) and size is not None else None)

    def shares_within(self, size: int, absent: int) -> Callable[[int | None], str]:
        """Return a function that formats a part of ``size`` bytes as a share of RSS, for a cell.

        ``absent`` of the bytes are not resident, but it is unknown which ones. So the function returns "?" if they
        change the share of the whole.
        """
        return (lambda _size: "?") if self.differs(size, absent) else self.share

    def share_of_resident(self, size: int | None) -> str:
        """Return a number of resident bytes in percent of RSS, for a cell."""
        return share_text(size, self.rss)

    def of_rss(self, size: int | None, absent: int = 0) -> str:
        """Return " (12.3 % of RSS)" for the size of blocks in a sentence; "" if ``share`` is unknown.

        If ``absent`` bytes, which are not resident, change the share, the resident size comes before the share.
        """
        if size is None or not self._is_share(size, absent):
            return ""
        share = self.resident_of_rss(size - absent)
        return f" ({self.bytes(size - absent)} resident, {share[2:]}" if self.differs(size, absent) else share

    def differs(self, size: int | None, absent: int) -> bool:
        """Return whether ``absent`` of the ``size`` bytes, which are not resident, change the printed share of RSS.

        If so, the resident size is printed too.
        """
        if size is None or not self.rss or absent <= 0:
            return False
        return self.share_of_resident(size) != self.share_of_resident(size - absent)

    def resident_of_rss(self, size: int | None) -> str:
        """Return " (12.3 % of RSS)" for resident bytes in a sentence; "" if the bytes or RSS are unknown."""
        whole = "private memory" if self.private else "RSS"
        return f" ({self.share_of_resident(size)} % of {whole})" if self.rss and size is not None else ""

    def _is_share(self, size: int | None, absent: int) -> bool:
        return self.rss is not None and size is not None and size - absent <= self.rss

    def filled(self, text: str) -> str:
        """Return a sentence wrapped at the terminal's width. Without a terminal it stays on one line."""
        text = self.named(text)
        if self.width is None:
            return text
        width = max(self.width - 1, NARROWEST)
        if width_of(text) <= width and text.isprintable():
            # Importing textwrap takes longer than the rest of a short command.
            return text
        import textwrap

        # A line may end with the first half of a wide character. The second half then takes the terminal's last column.
        lines = [line.replace(SECOND, "") for line in textwrap.wrap(spread(text), width, subsequent_indent=INDENT)]
        return "\n".join([*lines[:1], *(_no_command(line) for line in lines[1:])])

    def named(self, text: str) -> str:
        """Return a sentence with gdbheap's quoted commands as a reader of the report types them."""
        return as_typed(text, self.command)

    def heading(self, text: str) -> str:
        """Return ``text`` in bold if the terminal can show it."""
        return f"{BOLD}{text}{PLAIN}" if self.bold else text

    def coloured(self, text: str, what: str | None) -> str:
        """Return ``text`` in the colour of ``what``, a key of COLOURS. Return it plain if the terminal shows no
        colours."""
        colour = COLOURS.get(what or "") if self.bold and text else None
        return f"{colour}{text}{PLAIN}" if colour else text


def _no_command(line: str) -> str:
    """Return a wrapped line that cannot be mistaken for a command to paste, even if a name in it begins like one."""
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
    """Return the style for a stream: with width, bold headings and colours for a terminal; plain and of any width
    otherwise.

    ``encoding``: the encoding of the output, None for the stream's own. ``command``: the first word of gdbheap's
    commands.
    """
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
    """Return ``text`` without control characters, except gdbheap's own styles, and with only characters of
    ``encoding``.
    """
    first, *styled = text.split(ESCAPE)
    return encodable(printable_lines(first) + "".join(map(_styled, styled)), encoding)


def _styled(text: str) -> str:
    """Return the escape character, followed by ``text``, in printable form.

    The escape character itself stays only if it begins one of gdbheap's own styles.
    """
    style = next(filter(text.startswith, STYLES), "")
    return ESCAPE + style + printable_lines(text[len(style) :]) if style else printable_lines(ESCAPE + text)


def encodable(text: str, encoding: str | None) -> str:
    r"""Return ``text`` with ``\uXXXX`` for characters that ``encoding`` lacks. Names in a target may have any
    character, and terminals have various encodings."""
    name = encoding or sys.getdefaultencoding()
    try:
        return text.encode(name, "backslashreplace").decode(name)
    except LookupError:
        return text.encode("ascii", "backslashreplace").decode("ascii")
