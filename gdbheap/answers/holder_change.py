"""Changes of holders since an earlier snapshot, as records."""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = ["HolderChange", "Since"]


@dataclass(frozen=True)
class HolderChange:
    """A holder of the first look, the last one, or both.

    ``bytes``: how many more it holds; ``looks``: how many in each look; ``count``: how many more items it has, None
    where it has no length in both looks; ``counts``: in each look. ``state``: new, gone or changed. ``at_least``: a
    look has no row of it, as it was too small there or not all references were read, so that it grew by this or more.
    ``parts``: paths below it that have rows of their own in some looks only; their bytes are among its own."""

    path: str
    kind: str
    what: str | None
    address: int | None
    state: str
    bytes: int
    looks: list[int]
    count: int | None
    counts: list[int | None]
    at_least: bool = False
    parts: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Since:
    """The change since a snapshot ``seconds`` ago: bytes of ``rss``, of resident blocks ``in_use`` and of ``free``
    ones, None where that is not known; ``holders``: None where a look does not have them."""

    seconds: float
    rss: int | None
    in_use: int | None
    free: int | None
    holders: list[HolderChange] | None
