"""Format and parse numbers for people: sizes in powers of 1024, shares, counts, durations, addresses."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    import re
    from collections.abc import Sequence

__all__ = [
    "UNKNOWN", "address_text", "arena_text", "count_text", "counted", "duration_text", "is_name", "listed",
    "parse_address", "parse_duration", "parse_size", "share_text", "size_text", "sum_or_none",
]  # fmt: skip

UNKNOWN = "?"
UNITS = ("KiB", "MiB", "GiB", "TiB", "PiB", "EiB")
SUFFIXES = {"": 0, "K": 10, "M": 20, "G": 30, "T": 40}
SIZE = r"(?ai)([0-9]+)(\.[0-9]+)?([KMGT]?)(?:iB|B)?"
DURATION = r"(?a)([0-9]+(?:\.[0-9]+)?)(ms|s|m|h|d|)"
SECONDS = {"ms": 0.001, "": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}
MAX_SECONDS = 1e9
ADDRESS = r"(?ai)0x[0-9a-f]+|[0-9]+"


def sum_or_none(values: Sequence[int | None]) -> int | None:
    """Return the sum of ``values``; None if one of them is unknown."""
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None


def size_text(size: int | None, exact: bool = False) -> str:
    """Return ``size`` bytes as "1.5 MiB", or as "1,572,864" if ``exact``; "?" for None (unknown)."""
    if size is None:
        return UNKNOWN
    return count_text(size) if exact else _rounded(size)


def _rounded(size: int) -> str:
    if abs(size) < 1024:
        return f"{size} B"
    value = float(size)
    for unit in UNITS:
        value /= 1024
        # 1023.95 would be printed as 1024.0, so it gets the next unit.
        if abs(value) < 1023.95 or unit == UNITS[-1]:
            break
    return f"{value:.1f} {unit}"


def count_text(count: int | None) -> str:
    """Return ``count`` with thousands separators; "?" for None (unknown)."""
    return UNKNOWN if count is None else f"{count:,}"


def counted(count: int, one: str, many: str | None = None) -> str:
    """Return a number with its noun, such as "1 arena" or "1,200 arenas". ``many``: the plural, unless it is ``one``
    with an s."""
    return f"{count_text(count)} {one if count == 1 else many or one + 's'}"


def share_text(part: int | None, whole: int | None) -> str:
    """Return ``part`` in percent of ``whole``, with one decimal and without a percent sign; "?" if one of them is
    unknown.
    """
    if part is None or not whole:
        return UNKNOWN
    return f"{100 * part / whole:.1f}"


def address_text(address: int | None) -> str:
    """Return an address in hexadecimal; a hyphen for None (no address)."""
    return "-" if address is None else f"{address:#x}"


def listed(names: Sequence[str]) -> str:
    """Return names joined as in a sentence: ``a``, ``a and b``, ``a, b and c``."""
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last


def arena_text(index: int | None) -> str:
    """Return an arena's index, or "main" for the first arena; a hyphen for None (no arena)."""
    return "-" if index is None else str(index) if index else "main"


def parse_size(text: str) -> int:
    """Parse a size, such as "4096", "64K", "1M", "1.5G" or "1MiB" (in powers of 1024). Return bytes. Raises
    ValueError."""
    found = _matched(SIZE, text.strip())
    if found is None:
        raise ValueError(f"{text!r} is not a size: bytes, or a number with K, M, G or T")
    whole, fraction, suffix = found.group(1), found.group(2) or "", found.group(3).upper()
    if fraction and not suffix:
        raise ValueError(f"{text!r} is not a size: a size must be a whole number of bytes")
    return _bounded(
        text, int(float(whole + fraction) * (1 << SUFFIXES[suffix])) if fraction else int(whole) << SUFFIXES[suffix]
    )


def duration_text(seconds: float) -> str:
    """Return a duration with at most one decimal: "500 ms", "1.5 s", "10 min", "2 h".

    Minutes, hours and days are used only for exactly one or at least two of them: 90 minutes are "90 min".
    """
    if seconds < 1:
        return f"{1000 * seconds:.0f} ms"
    for unit, size in (("days", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size or seconds == size:
            return f"{seconds / size:.1f}".removesuffix(".0") + f" {'day' if seconds == 86400 else unit}"
    return f"{seconds:.1f}".removesuffix(".0") + " s"


def parse_duration(text: str) -> float:
    """Parse a duration, such as "90", "90s", "500ms", "10m", "1.5h" or "2d". Return seconds. Raises ValueError."""
    found = _matched(DURATION, text.strip())
    if found is None:
        raise ValueError(f"{text!r} is not a duration: seconds, or a number with ms, s, m, h or d")
    seconds = float(found[1]) * SECONDS[found[2]]
    if seconds > MAX_SECONDS:
        raise ValueError(f"{text!r} is too long a duration")
    return seconds


def is_name(text: str) -> bool:
    """Return whether a text can only be a name of a holder, not an address."""
    return not text[:1].isdigit() and any(character.isalpha() for character in text)


def parse_address(text: str) -> int:
    """Parse an address in hexadecimal (0x…) or decimal. Raises ValueError, also for a number with more than 64 bits."""
    if _matched(ADDRESS, text) is None:
        raise ValueError(f"{text!r} is not an address: give it in hexadecimal (0x7f00…) or decimal")
    return _bounded(text, int(text, 16 if text.lower().startswith("0x") else 10))


def _matched(pattern: str, text: str) -> re.Match[str] | None:
    # Imported here, as in _bounded, so that callers that only print numbers start faster.
    import re

    return re.fullmatch(pattern, text)


def _bounded(text: str, value: int) -> int:
    from gdbheap.machines.machine import LARGEST_ADDRESS

    if not 0 <= value <= LARGEST_ADDRESS:
        raise ValueError(f"{text!r} does not fit into 64 bits")
    return value
