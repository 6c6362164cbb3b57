"""The columns of a terminal that a text takes. Wide characters, such as Chinese ones, take two."""

from __future__ import annotations

__all__ = ["SECOND", "first_columns", "last_columns", "padded", "spread", "unspread", "width_of"]

WIDE = ("W", "F")
# The mark that ``spread`` puts behind each wide character. Texts that are printed contain no NUL.
SECOND = "\0"


def width_of(text: str) -> int:
    """Return how many columns of a terminal a printable text takes. A combining mark counts as one column, although it
    takes none.
    """
    if text.isascii():
        return len(text)
    # Imported here, because names are seldom wide.
    from unicodedata import east_asian_width

    return len(text) + sum(east_asian_width(character) in WIDE for character in text)


def spread(text: str) -> str:
    """Return the text with a mark behind each wide character, so that each character of the result takes one column."""
    if width_of(text) == len(text):
        return text
    from unicodedata import east_asian_width

    return "".join(one + SECOND if east_asian_width(one) in WIDE else one for one in text)


def unspread(text: str) -> str:
    """Return a part of a text from ``spread`` without the marks. Half a wide character at either end is left out."""
    from unicodedata import east_asian_width

    if text and east_asian_width(text[-1]) in WIDE:
        text = text[:-1]
    return text.replace(SECOND, "")


def first_columns(text: str, count: int) -> str:
    """Return as much of the beginning of a text as fits in ``count`` columns."""
    return text[: max(count, 0)] if text.isascii() else unspread(spread(text)[: max(count, 0)])


def last_columns(text: str, count: int) -> str:
    """Return as much of the end of a text as fits in ``count`` columns."""
    if count <= 0:
        return ""
    return text[-count:] if text.isascii() else unspread(spread(text)[-count:])


def padded(text: str, width: int, left: bool) -> str:
    """Return the text with blanks up to ``width`` columns, the text on the left or on the right."""
    blanks = " " * (width - width_of(text))
    return text + blanks if left else blanks + text
