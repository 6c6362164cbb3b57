"""The steps of a command that are the same in gdb and in the shell: answer, sort, cut, render, and compute the exit
status."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from gdbheap.answers.accounting.records import ROWS
from gdbheap.api.asking import disclosing
from gdbheap.commands.surface.declaration import FILE, AnyCommand, Shown
from gdbheap.commands.surface.options import STDOUT, Addressed, Common, MaybeAddressed, Pictured
from gdbheap.dataclass import dataclass
from gdbheap.errors import NotPermitted, Unsupported, UsageError, one_line, own_line
from gdbheap.files import own_descriptor
from gdbheap.report.formats.json import MOST, bounded, document, text_of
from gdbheap.report.text.style import FAULT, Style
from gdbheap.report.text.tables import join
from gdbheap.report.words.check import named
from gdbheap.text import printable_record

if TYPE_CHECKING:
    from gdbheap.commands.inferior_calls.inferior_call import Calls
    from gdbheap.heap import Heap
    from gdbheap.remarks import Remark
    from gdbheap.snapshots.snapshot import SnapshotWithBlocks
    from gdbheap.targets.following import LocalProcess
    from gdbheap.targets.target import Damage

__all__ = [
    "Result",
    "TargetInfo",
    "ask",
    "ask_about_looks",
    "ask_about_process",
    "ask_of",
    "disclosing",
    "listed",
    "order",
    "present",
    "status_of",
    "with_warnings",
]

Row = TypeVar("Row")
PARTIAL = 1
# If a command has no default of --top, the limit of MOST bytes of JSON is for this many rows.
USUAL_ROWS = 20
SNAPSHOT = "snapshot"
DAMAGE_LISTED = 5


@dataclass(frozen=True)
class TargetInfo:
    """Facts about the targets of an answer, which are shown together with the answer.

    ``targets``: their descriptions as in a JSON document.
    ``rss``: RSS in bytes, None if unknown.
    ``private``: whether ``rss`` counts only private memory.
    ``refused``: whether memory could not be read, so that only a part of the question was answered.
    """

    targets: Sequence[dict[str, Any]]
    warnings: Sequence[str]
    damage: Sequence[Damage]
    partial: bool
    rss: int | None
    private: bool = False
    refused: bool = False

    @staticmethod
    def of(heaps: Sequence[Heap]) -> TargetInfo:
        """Collect the facts from the heaps. Afterwards the targets may be closed. ``rss`` is the last heap's RSS."""
        if not heaps:
            return TargetInfo([], [], [], False, None)
        last = heaps[-1].target
        # This comes before the warnings, because finding a version may add some.
        targets = [{**heap.target.describe(), **heap.versions} for heap in heaps]
        warnings = _sentences(warning for heap in heaps for warning in heap.warnings)
        damage = [named(place) for heap in heaps for place in heap.damage]
        partial = any(heap.partial for heap in heaps)
        refused = any(heap.target.refusal is not None for heap in heaps)
        return TargetInfo(targets, warnings, damage, partial, last.rss.bytes, last.rss.private, refused)

    @property
    def target(self) -> dict[str, Any]:
        """The description of the last target; {} if there is none."""
        return self.targets[-1] if self.targets else {}


def _sentences(warnings: Iterable[str | Remark]) -> list[str]:
    from gdbheap.report.words.remarks import sentence_of  # Help has no warnings, and starts faster without this import.

    return list(map(sentence_of, warnings))


@dataclass(frozen=True)
class Result:
    """An answer with everything that is needed to print it, so that the process can run on before the answer is
    printed.

    ``whole``: the answer before --sort and --top."""

    command: AnyCommand
    options: Common
    info: TargetInfo
    answer: Any
    whole: Any


def ask(command: AnyCommand, heap: Heap, options: Common, calls: Calls | None = None) -> Result:
    """Answer a command about one target, and sort and cut the answer as the options ask. Raises the errors of the
    answer.

    ``calls``: the object that makes calls in the process, None if no call can be made."""
    return ask_of(command, heap, [heap], _named(heap, options), calls)


def _named(heap: Heap, options: Common) -> Common:
    """Return the options, with the address of the holder whose name was given."""
    if not isinstance(options, (Addressed, MaybeAddressed)) or options.name is None:
        return options
    # Few commands name a holder; all others start faster without this import.
    from gdbheap.answers.accounting.source_paths import holder_named

    with disclosing([heap], options.no_text):
        found = holder_named(heap, options.name)
        return dataclasses.replace(options, address=found.address, share=found.share, name=None)


def ask_of(
    command: AnyCommand, subject: Any, heaps: Sequence[Heap], options: Common, calls: Calls | None = None
) -> Result:
    """Answer a command about its subject. ``heaps``: the heaps that the subject contains.

    Raises UsageError for invalid options. The callers have already checked the options once, before they opened a
    target."""
    options.check()
    _check_output(command, options)
    with disclosing(heaps, options.no_text):
        call = command.call_for(options)
        if call is None or calls is None:
            whole = command.answer(subject, options)
        else:
            whole = call.make(subject, calls, options)
        answer = _cut(command, whole, options) if _has_rows(command, whole) else whole
        info = TargetInfo.of(heaps)
        # An answer about several processes itself describes them.
        about = [] if heaps else getattr(whole, "targets", [])
        return Result(command, options, dataclasses.replace(info, targets=about) if about else info, answer, whole)


def _check_output(command: AnyCommand, options: Common) -> None:
    """Raise UsageError if a file and the JSON document would both go to standard output."""
    for option in command.own_options if options.json else ():
        value = getattr(options, option.key)
        if option.metavar == FILE.metavar and isinstance(value, str) and own_descriptor(value) == STDOUT:
            raise UsageError(
                f"{command.name}: --json and {option.name} {one_line(value)} both write to standard output"
            )


def ask_about_looks(command: AnyCommand, looks: Sequence[SnapshotWithBlocks], options: Common) -> Result:
    """Answer a command that compares two or more snapshots. The result has the warnings of all snapshots, and the RSS
    of the last one.
    """
    found = [look.snapshot for look in looks]
    targets = [{**look.snapshot.target, **({"kind": SNAPSHOT} if look.is_kept else {})} for look in looks]
    last = found[-1]
    warnings = list(dict.fromkeys(_sentences(warning for look in found for warning in look.warnings)))
    partial = any(look.partial or look.damaged for look in found)
    info = TargetInfo(targets, warnings, [], partial, last.ledger.rss.bytes)
    return dataclasses.replace(ask_of(command, tuple(looks), [], options), info=info)


def ask_about_process(command: AnyCommand, process: LocalProcess, options: Common) -> Result:
    """Answer a command that observes a process while it runs."""
    described = process.describe()
    answered = ask_of(command, process, [], options)
    info = TargetInfo([described], [*process.warnings, *process.unread], [], bool(process.warnings), None)
    return dataclasses.replace(answered, info=info)


def with_warnings(answered: Result, warnings: Sequence[str]) -> Result:
    """Return the result with these warnings added."""
    info = dataclasses.replace(answered.info, warnings=[*answered.info.warnings, *warnings])
    return dataclasses.replace(answered, info=info)


def _has_rows(command: AnyCommand, whole: Any) -> bool:
    is_meant = command.listing is None or isinstance(whole, command.listing)
    return bool(command.rows) and is_meant and hasattr(whole, command.rows)


def _cut(command: AnyCommand, whole: Any, options: Common) -> Any:
    return _with_rows(command, whole, command.rows, options)


def _with_rows(command: AnyCommand, whole: Any, name: str, options: Common) -> Any:
    rows = getattr(whole, name)
    shown = listed(rows, command.sorts, options) if command.sorts_rows else rows[: options.top]
    return dataclasses.replace(whole, **{name: shown})


def listed(rows: Sequence[Row], sorts: Mapping[str, Callable[[Any], Any]], options: Common) -> list[Row]:
    """Return the rows in the order of --sort, at most --top of them."""
    return sorted(rows, key=order(sorts[options.sort]))[: options.top]


def order(key: Callable[[Any], Any]) -> Callable[[Any], tuple[int, Any]]:
    """Return a key for sorted(): first numbers in descending order, then words in alphabetical order, then None."""

    def place(row: Any) -> tuple[int, Any]:
        value = key(row)
        if value is None:
            return 2, 0
        return (1, value) if isinstance(value, str) else (0, -value)

    return place


def present(answered: Result, style: Style) -> str:
    """Return the text to print, without its last line break; "" if the command has printed it.

    The text is a JSON document, or a tree for another program, or tables and sentences with the warnings below."""
    info, answer = answered.info, answered.answer
    if answered.options.is_printed:
        return ""
    if isinstance(answered.options, Pictured) and answered.options.printed:
        return answered.options.printed.rstrip("\n")
    if answered.options.json:
        return _document(answered)
    left_out, damage = _left_out(answered), printable_record(list(info.damage))
    shown = Shown(printable_record(answer), answered.whole, left_out, damage, answered.options, style)
    return join(answered.command.render(shown), _notes(answered, style))


def _document(answered: Result) -> str:
    """Return the JSON document. It has at most MOST bytes, unless --top asks for more rows."""
    command, options, info = answered.command, answered.options, answered.info
    answer, whole = answered.answer, answered.whole
    form = getattr(whole, "as_document", None)
    if form is not None:
        answer = whole = form()
        name = ROWS if hasattr(whole, ROWS) else command.rows
        answer = _with_rows(command, whole, name, options) if command.rows else whole
    content = document(command.name, info.targets, info.warnings, info.damage, answer, whole)
    if options.has_top and options.top is None:
        return text_of(content)
    if not options.has_top:
        return bounded(content)
    times = -(-(options.top or 0) // (command.top or USUAL_ROWS))
    return bounded(content, max(1, times) * MOST, ROWS if ROWS in content else command.rows)


def _left_out(answered: Result) -> int:
    rows = answered.command.rows
    if not _has_rows(answered.command, answered.whole):
        return 0
    return len(getattr(answered.whole, rows)) - len(getattr(answered.answer, rows))


def _notes(answered: Result, style: Style) -> str:
    """Return the warnings, and the damage unless the answer's table lists it."""
    lines = [f"{style.heading('Warning:')} {style.named(own_line(warning))}" for warning in answered.info.warnings]
    damage = [] if answered.command.lists_damage else answered.info.damage
    for place in damage[:DAMAGE_LISTED]:
        what = f"{place.what}: expected {place.expected}, found {place.found}"
        lines.append(f"{style.coloured(f'Damage at {place.address:#x}:', FAULT)} {one_line(what)}")
    if len(damage) > DAMAGE_LISTED:
        more = f"{len(damage) - DAMAGE_LISTED:,} more places; 'heap check' lists them all."
        lines.append(f"{style.coloured('Damage:', FAULT)} {style.named(more)}")
    return "\n".join(lines)


def status_of(answered: Result) -> int:
    """Return the exit status.

    0: the command has answered.
    1: it has answered, but the heap is damaged or the answer is partial.
    3: memory could not be read, so that only a part of the question was answered.
    5: most of the memory could not be analysed, and nothing else was found.

    If the command started another program, return that program's status. Return 1 if that status is 0 and the disk was
    full.
    """
    passed_on: int | None = getattr(answered.answer, "exit_status", None)
    if passed_on is not None:
        return passed_on or (PARTIAL if getattr(answered.answer, "disk_full", False) else 0)
    if answered.info.refused or getattr(answered.answer, "is_refused", False):
        return NotPermitted.status
    whole = not answered.info.partial and getattr(answered.answer, "ok", True)
    if not whole:
        return PARTIAL
    return Unsupported.status if getattr(answered.answer, "is_blind", False) else 0
