"""Sizes and counts in words, for reports and for answers that are sentences."""

from __future__ import annotations

__all__ = ["UNKNOWN", "count_text", "counted", "size_text"]

UNKNOWN = "?"
UNITS = ("KiB", "MiB", "GiB", "TiB", "PiB", "EiB")


def size_text(size: int | None, exact: bool = False) -> str:
    """``size`` bytes as "1.5 MiB", or as "1,572,864" when ``exact``; None (not known) as "?"."""
    if size is None:
        return UNKNOWN
    return count_text(size) if exact else _rounded(size)


def _rounded(size: int) -> str:
    if abs(size) < 1024:
        return f"{size} B"
    value = float(size)
    for unit in UNITS:
        value /= 1024
        # 1023.95 would print as 1024.0
        if abs(value) < 1023.95 or unit == UNITS[-1]:
            break
    return f"{value:.1f} {unit}"


def count_text(count: int | None) -> str:
    """``count`` with thousands separators; None (not known) as "?"."""
    return UNKNOWN if count is None else f"{count:,}"


def counted(count: int, one: str, many: str | None = None) -> str:
    """ "1 arena", "1,200 arenas"; ``many`` is what several are called, ``one`` and an s unless it is given."""
    return f"{count_text(count)} {one if count == 1 else many or one + 's'}"
