"""Where objects tell how large they are, for the native count of what they asked pymalloc for."""

from __future__ import annotations

from dataclasses import dataclass

from gdbheap.layout.cpython import FLAG_INT, FLAG_UNICODE, OB_SIZE, Release


@dataclass(frozen=True)
class Sizing:
    """What the native count is told; see native/src/instances.rs."""

    ob_size: int
    tagged: bool
    flag_int: int
    flag_str: int
    str_length: int
    str_state: int
    sizeof_ascii: int
    sizeof_compact: int
    flag_inline: int


def sizing(release: Release) -> Sizing:
    """Of one release."""
    fields = ("unicode_length", "unicode_state", "sizeof_ascii", "sizeof_compact")
    known = [release.get(name) for name in fields]
    numbers = [number or 0 for number in known]
    flag_str = FLAG_UNICODE if None not in known else 0
    inline = release.get("flag_inline_values") or 0
    return Sizing(OB_SIZE, release.get("lv_tag") is not None, FLAG_INT, flag_str, *numbers, inline)
