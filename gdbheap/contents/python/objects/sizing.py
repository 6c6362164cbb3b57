"""The fields in which objects state their sizes. The native code uses them to count the bytes that objects asked
pymalloc for.
"""

from __future__ import annotations

from gdbheap.dataclass import dataclass
from gdbheap.layout.cpython import FLAG_INT, FLAG_UNICODE, OB_SIZE, Release


@dataclass(frozen=True)
class SizeFields:
    """The fields from which sizes of objects are computed; see native/core/src/python/sizing.rs."""

    ob_size: int
    tagged: bool
    flag_int: int
    flag_str: int
    str_length: int
    str_state: int
    str_state_shift: int
    sizeof_ascii: int
    sizeof_compact: int
    flag_inline: int


def sizing(release: Release) -> SizeFields:
    """Return the offsets in bytes of the fields from which the sizes of a release's objects are computed."""
    fields = ("unicode_length", "unicode_state", "sizeof_ascii", "sizeof_compact")
    known = [release.get(name) for name in fields]
    length, state, ascii_header, compact_header = (number or 0 for number in known)
    return SizeFields(
        ob_size=release.at(OB_SIZE),
        tagged=release.get("lv_tag") is not None,
        flag_int=FLAG_INT,
        flag_str=FLAG_UNICODE if None not in known else 0,
        str_length=length,
        str_state=state,
        str_state_shift=release.get("unicode_state_shift") or 0,
        sizeof_ascii=ascii_header,
        sizeof_compact=compact_header,
        flag_inline=release.get("flag_inline_values") or 0,
    )
