"""The known word that is nearest to an unknown one."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["did_you_mean"]


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return the end of a sentence that asks for the known word which is spelled most like this one; empty where none
    is."""
    # It takes some milliseconds, and only a wrong word pays for it.
    from difflib import get_close_matches

    found = get_close_matches(word, [one for one in known if one], 1)
    return f"; did you mean {found[0]!r}?" if found else ""
