"""Make a text that a target chose safe for a terminal, a JSON document and a spreadsheet.

This module imports only what a short command needs.
"""

from __future__ import annotations

from operator import is_

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, TypeVar

    T = TypeVar("T")
    # The new texts by old text, and the new records by the id of the old record (stacks share their frames).
    Known = dict[object, Any]

__all__ = [
    "IN_GDB", "IN_SHELL", "MOST_DIGITS", "Sentence", "SeveralLines", "as_typed", "bounded_number", "csv_cell",
    "file_name", "json_text", "named", "plain_word", "printable", "printable_lines", "printable_record", "quoted",
    "without_commands",
]  # fmt: skip

# The first word of gdbheap's commands, in gdb and in a shell.
IN_GDB, IN_SHELL = "heap", "gdbheap"
# How gdbheap's sentences quote a command, and the harmless form, in which an escape replaces the command's first
# letter.
COMMANDS = tuple((f"'{word} ", f"'\\x{ord(word[0]):02x}{word[1:]} ") for word in (IN_GDB, IN_SHELL))
# The most characters that are shown of a name, and of a target's text in a sentence.
LONGEST, LONGEST_QUOTED = 4000, 60
# A name with any of these is put into quotes: a quote or a pipe; a mark that ends a clause or a sentence, before a
# blank or at the end; a dash between blanks; several words in single quotes, as gdbheap's commands are quoted.
FORGING = r"""["`|]|[.;!?][)\]}'>]*(?:\s|$)|\s-+\s|(?<!\w)'[^'\s]*\s[^']*'(?!\w)"""
# Each match of FORGING has at least one of these.
NEEDED_TO_FORGE = "\"`|.;!?-'"
# Patterns of quoted strings that contain no closing quote. WHOLE_TEXT: nothing but a string, which may be cut. KEY: a
# string that is a key, an item or a value, as in ['name'].
TEXT = r"""[bruBRU]{0,2}'[^']*(?<!\\)'|b?"[^"]*(?<!\\)\""""
WHOLE_TEXT = rf"(?:{TEXT})(?:…?(?: \([\d,]+ in all\))?)"
KEY = rf"(?<=[\[({{=])(?:{TEXT})(?=[\])}},:])"
# The placeholder for a text that is not shown (contents/python/text/disclosure).
HIDDEN = r"<\w+ of [\d,]+>"
# The most combining marks on one letter: more of them would cover the lines above and below.
MOST_MARKS = 4
PLAIN_END = "\u0300"
CUT = "…"
# Python counts these as printable, but no terminal shows them.
UNSEEN = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0")
MARKS = ("Mn", "Me")
# The kinds of characters, and the most characters whose kind is remembered.
LETTER, PUNCTUATION, MARK, UNSEEN_MARK, NOT_SHOWN = "apmue"
MOST_KINDS = 1 << 15
# UNPLAIN matches the parts of a text that may need escapes. ESCAPED matches the characters to escape, in the text of
# their kinds.
UNPLAIN = "[^ -~]+(?:[ -~]{1,40}[^ -~]+)*"
ESCAPED = f"(?:[{UNSEEN_MARK}{NOT_SHOWN}]|(?<=[{MARK}{UNSEEN_MARK}]{{{MOST_MARKS}}}){MARK})+"
# ASCII characters and the mark of a cut text: they are no punctuation outside ASCII.
PLAIN = f"[\0-\x7f{CUT}]+"
# int() accepts at most 4,300 digits, and older releases of Python get slow with many.
MOST_DIGITS = 400
# The most texts and records that one call of printable_record remembers.
MOST_KNOWN = 1 << 16
COMPUTED = tuple("=+-@\uff1d\uff0b\uff0d\uff20\t\r\n")
IN_FRONT = " \"'"


def bounded_number(digits: str, most: int, base: int = 10) -> int:
    """Return the value of ``digits``, or ``most`` if the value is larger. The digits have no sign and no prefix."""
    digits = digits.lstrip("0")
    return min(int(digits or "0", base), most) if len(digits) <= MOST_DIGITS else most


def as_typed(text: str, command: str) -> str:
    """Return ``text`` with ``command`` instead of "heap" in the commands that it quotes.

    ``printable_record`` has already escaped commands in texts from the target, so only gdbheap's own commands change.
    """
    if command == IN_GDB:
        return text
    return text.replace(f"'{IN_GDB} ", f"'{command} ").replace(f"'{IN_GDB}'", f"'{command}'")


def printable(text: str) -> str:
    """Return ``text`` on one line, with an escape for each character that controls a terminal or is invisible.

    These are controls, line breaks, bidirectional controls, lone surrogates, and characters without a width.
    """
    # Many long texts have the mark of a cut text. It alone does not need the slow search below.
    if text.isprintable() and (text.isascii() or max(text.replace(CUT, " ")) < PLAIN_END):
        return text
    # Imported here, because hardly any text needs it.
    import re

    return re.sub(UNPLAIN, lambda found: _escaped(found[0]), text)


def _escaped(text: str) -> str:
    """Return ``text`` with an escape for each invisible character. Combining marks are escaped if more than MOST_MARKS
    follow one another.
    """
    import re

    shown, end = [], 0
    for found in re.finditer(ESCAPED, text.translate(_KINDS)):
        shown += [text[end : found.start()], ascii(text[found.start() : found.end()])[1:-1]]
        end = found.end()
    return "".join([*shown, text[end:]])


class _KindsOfCharacters(dict[int, str]):
    """The kind of each character that was seen so far, as a table for ``str.translate``."""

    def __missing__(self, code: int) -> str:
        kind = _kind(chr(code))
        if len(self) < MOST_KINDS:
            self[code] = kind
        return kind


def _kind(character: str) -> str:
    from unicodedata import category

    name = category(character)
    is_shown = character.isprintable() and character not in UNSEEN and not _selects(character)
    if character >= PLAIN_END and name in MARKS:
        return MARK if is_shown else UNSEEN_MARK
    return NOT_SHOWN if not is_shown else PUNCTUATION if character > "\x7f" and name[0] == "P" else LETTER


_KINDS = _KindsOfCharacters()


def _selects(character: str) -> bool:
    """Return whether a character is a variation selector, which is invisible."""
    return "\ufe00" <= character <= "\ufe0f" or "\U000e0100" <= character <= "\U000e01ef"


def plain_word(name: str, otherwise: str) -> str:
    """Return the name of a file for a command that the user pastes. Return ``otherwise`` if a shell would not read the
    name as one word without quotes.
    """
    # Imported here, because few sentences need it.
    import re

    return name if re.fullmatch(r"[\w./+][\w./+-]*", name, re.ASCII) else otherwise


def printable_lines(text: str) -> str:
    """Return ``text`` with each of its lines ``printable``."""
    return "\n".join(map(printable, text.split("\n")))


def quoted(text: str, most: int = LONGEST_QUOTED) -> str:
    """Return a text that the target chose, in double quotes that the text cannot close.

    If it is longer than ``most``, only its beginning and its end are shown. The placeholder of a text that is not shown
    stays unchanged.
    """
    # Imported here, because few sentences need it.
    import re

    if re.fullmatch(HIDDEN, text) or (_is_quoted(text) and len(text) <= most):
        return text
    text = text[1:-1] if _is_quoted(text) else text
    text = without_commands(printable(text))
    if len(text) > most:
        text = f"{text[: most // 2]}…{text[-(most // 2) :]}"
    text = text.replace('"', "\\x22")
    return f'"{text[:-1]}\\x5c"' if text.endswith("\\") else f'"{text}"'


def named(text: str) -> str:
    """Return a name that the target chose, ready for a sentence.

    A name stays unchanged if it looks like a name, a type, a path or a quoted text. Otherwise it is ``quoted``, so that
    nothing in it can be taken for gdbheap's own words.
    """
    return quoted(text, LONGEST) if _reads_as_ours(text) else text


def file_name(path: str) -> str:
    """Return the last part of a path. If ``named`` has put the path into quotes, the part has quotes too."""
    name = path.rsplit("/", 1)[-1]
    return f'"{name}' if _is_quoted(path) and name != path else name


def _is_quoted(text: str) -> bool:
    return len(text) > 1 and text[0] == text[-1] == '"' and '"' not in text[1:-1] and text[-2] != "\\"


def _reads_as_ours(text: str) -> bool:
    """Return whether a text contains anything that could be taken for gdbheap's own words."""
    if text.isascii() and text.isidentifier():
        return False
    # Imported here, because a short command has no such name.
    import re

    if re.fullmatch(WHOLE_TEXT, text):
        return False
    # To look for single characters is much faster than a regular expression.
    rest = re.sub(KEY, "", text) if any(mark in text for mark in "\"'") else text
    is_forging = any(mark in rest for mark in NEEDED_TO_FORGE) and bool(re.search(FORGING, rest))
    return is_forging or (not rest.isascii() and _has_marks(rest))


def _has_marks(text: str) -> bool:
    """Return whether a text has punctuation outside ASCII, such as typographic quotes."""
    import re

    return any(_KINDS[ord(character)] == PUNCTUATION for character in set(re.sub(PLAIN, "", text)))


def without_commands(text: str) -> str:
    """Return ``text`` with an escape in everything that looks like a quoted command of gdbheap."""
    for command, escaped in COMMANDS:
        text = text.replace(command, escaped)
    return text


class SeveralLines(str):
    """A text whose line breaks are intended: ``printable_record`` keeps them."""


class Sentence(str):
    """A text that needs no further escaping: gdbheap's own sentence, or a command line for the user to paste. Names
    from the target in it have passed through ``named()``.

    ``printable_record`` leaves its words unchanged.
    """


def printable_record(value: T) -> T:
    """Return an answer in which each text is ``printable``, ``named`` and without quoted commands.

    Records, lists, tuples and dicts are searched too. A value in which nothing changes stays the same object.
    """
    found: T = _changed(value, {})
    return found


def _changed(value: Any, known: Known) -> Any:
    change = _CHANGES.get(type(value)) or _change_of(value)
    return value if change is None else change(value, known)


def _change_of(value: object) -> Callable[[Any, Known], Any] | None:
    """Return the function that changes a value of this type, for types that are not Python's own. Return None if there
    is none.
    """
    if hasattr(value, "__dataclass_fields__"):
        return _record
    return _named if isinstance(value, tuple) else None


def _name(text: str, known: Known) -> str:
    found: str | None = known.get(text)
    if found is None:
        shown = without_commands(printable(text))
        found = _remember(known, text, named(shown if len(shown) <= LONGEST else f"{shown[:LONGEST]}…"))
    return found


def _remember(known: Known, key: object, value: T) -> T:
    if len(known) < MOST_KNOWN:
        known[key] = value
    return value


def _record(record: Any, known: Known) -> Any:
    if id(record) in known:
        return known[id(record)]
    found = {name: new for name, old in vars(record).items() if (new := _changed(old, known)) is not old}
    if not found:
        return _remember(known, id(record), record)
    # dataclasses.replace() would drop cached properties.
    changed = object.__new__(type(record))
    vars(changed).update(vars(record), **found)
    return _remember(known, id(record), changed)


def _items(items: Any, known: Known) -> Any:
    found = [_changed(item, known) for item in items]
    return items if all(map(is_, found, items)) else type(items)(found)


def _named(items: Any, known: Known) -> Any:
    found = _items(tuple(items), known)
    return items if all(map(is_, found, items)) else type(items)._make(found)


def _pairs(pairs: dict[Any, Any], known: Known) -> dict[Any, Any]:
    keys, values = list(pairs), list(pairs.values())
    new_keys, new_values = _items(keys, known), _items(values, known)
    return pairs if new_keys is keys and new_values is values else dict(zip(new_keys, new_values))


def _same(value: Any, _known: Known) -> Any:
    return value


_CHANGES: dict[type, Callable[[Any, Known], Any]] = {
    str: _name, SeveralLines: lambda text, _known: printable_lines(text),
    Sentence: lambda text, _known: Sentence(printable(text)), int: _same, float: _same, bool: _same, type(None): _same,
    list: _items, tuple: _items, dict: _pairs,
}  # fmt: skip


def json_text(content: object, default: Callable[[Any], Any] | None = None, separators: Any = None) -> str:
    """Return ``content`` as JSON in printable ASCII; json.dumps alone would leave DEL unescaped."""
    import json

    return json.dumps(content, default=default, separators=separators).replace("\x7f", "\\u007f")


def csv_cell(value: Any, safe: bool) -> Any:
    """Return a cell of a CSV row, with texts made ``printable``.

    ``safe``: put an apostrophe before texts that a spreadsheet would compute, except numbers.
    """
    if not isinstance(value, str):
        return value
    is_computed = safe and value.lstrip(IN_FRONT).startswith(COMPUTED) and not _is_number(value)
    return f"'{printable(value)}" if is_computed else printable(value)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
