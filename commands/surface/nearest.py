"""Suggest the known word that is most similar to an unknown one."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["did_you_mean"]


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return the end of a message that suggests the known word most similar to ``word``; "" if none is similar."""
    # Imported here, because the import takes some milliseconds and is needed only for a wrong word.
    from difflib import get_close_matches

    found = get_close_matches(word, [one for one in known if one], 1)
    return f"; did you mean {found[0]!r}?" if found else ""
