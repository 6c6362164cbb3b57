"""Open the processes, cores and files that a shell's command line names."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from gdbheap.commands.shell.cores import Stored, Subject, name_of
from gdbheap.commands.shell.line import CommandLine, Extra, Opener, extra_options, opened
from gdbheap.commands.shell.streams import complain
from gdbheap.commands.surface.declaration import ADDRESS, FILE, FUNCTION, QUERY, AnyCommand
from gdbheap.commands.surface.nearest import did_you_mean
from gdbheap.commands.surface.needs import (
    CALLED,
    FILES,
    FOLLOWED,
    LOG,
    LOOKS,
    MAYBE_PROCESS,
    NOTHING,
    PROCESS,
    PROCESSES,
    PROGRAMS,
    REPORTED,
    SESSION,
    SOURCE,
    SOURCES,
    STARTED,
    TARGET,
    TWO_TARGETS,
    Needs,
)
from gdbheap.commands.surface.options import (
    Addressed,
    Called,
    Common,
    Filed,
    MaybeAddressed,
    Queried,
    Several,
    options_of,
)
from gdbheap.commands.surface.parser import parse
from gdbheap.commands.surface.progress import shown_for
from gdbheap.commands.surface.registry import ABOUT_SEVERAL, COMMANDS, HEAP_NOUN
from gdbheap.commands.surface.session import (
    SNAPSHOT,
    Result,
    TargetInfo,
    ask,
    ask_about_looks,
    ask_about_process,
    ask_of,
    with_warnings,
)
from gdbheap.errors import GdbheapError, NoTarget, NotPermitted, UsageError, one_line
from gdbheap.files import find_file, is_folder
from gdbheap.report.text.numbers import is_name, parse_address
from gdbheap.targets.typed_target import parse_target
from gdbheap.text import plain_word

if TYPE_CHECKING:
    from gdbheap.commands.inferior_calls.local_calls import LocalCalls
    from gdbheap.export.gathered import Gathered
    from gdbheap.export.source import Source
    from gdbheap.heap import Heap
    from gdbheap.host.procfs import Named
    from gdbheap.snapshots.snapshot import SnapshotWithBlocks
    from gdbheap.targets.chosen_processes import Programs

__all__ = ["answer", "answer_about", "meant", "own_words"]

START = "--"


def meant(noun: str, words: Sequence[str]) -> AnyCommand:
    """Return the command with the name ``noun``. If there is no name, and the words name several processes, return the
    command for several processes.
    """
    if noun == HEAP_NOUN and _means_several(words):
        return COMMANDS[ABOUT_SEVERAL]
    return COMMANDS[noun]


def _means_several(words: Sequence[str]) -> bool:
    """Return whether a line without a command name gives several processes, or chooses processes by options such as
    --name.
    """
    takes = {option.name for option in (*COMMANDS[HEAP_NOUN].all_options, *options_of(Extra)) if option.takes_next}
    several = {option.name for option in options_of(Several)} - {option.name for option in options_of(Common)}
    named, rest = 0, iter(words)
    for word in rest:
        if word.partition("=")[0] in several:
            return True
        if word in takes:
            next(rest, None)
        named += word.isdecimal()
    return named > 1


def answer(command: AnyCommand, words: list[str]) -> Result:
    """Run a command with the ``words`` of its line, and return its result. Raises GdbheapError."""
    own = own_words(words) if command.needs.starts else words
    options, extra, left = parse(command, own, command.shell_name, extra_options(command))
    line = CommandLine(command, options, Extra(**extra), left, words[len(own) + 1 :], command.shell_name, opened)
    if len(own) + 1 == len(words):
        raise line.error("which command? Type it after --")
    options.check()
    return ANSWERS[command.needs](line)


def answer_about(command: AnyCommand, target: Subject, words: list[str], open: Opener) -> Result:
    """Answer a line that does not name its target, as lines in a session do.

    ``open``: a function that opens this target, or another one that the line names, as a heap. Raises GdbheapError."""
    options, _, left = parse(command, words, command.name)
    options.check()
    extra = Extra(coredump=target.match) if isinstance(target, Stored) else Extra()
    own = [] if isinstance(target, Stored) else [str(target)]
    if command.needs is LOOKS:
        # If the line names only one snapshot, it is compared with the target.
        named = [*left, *own] if len(left) == 1 else left
    else:
        named = [*own, *left]
    held = None if isinstance(target, (str, int, Stored)) else target
    return ANSWERS[command.needs](CommandLine(command, options, extra, named, [], command.name, open, held))


def own_words(words: Sequence[str]) -> list[str]:
    """Return the words before ``--``. The words after it belong to another program."""
    return list(words[: words.index(START)]) if START in words else list(words)


def _about_target(line: CommandLine) -> Result:
    target = _targets(line)[0]
    of_snapshot = line.command.of_snapshot
    if of_snapshot is not None and isinstance(target, str):
        from gdbheap.snapshots.file import is_snapshot, read

        if is_snapshot(target):
            answer = partial(_of_snapshot, of_snapshot, target)
            return ask_about_looks(dataclasses.replace(line.command, answer=answer), [read(target)], line.options)
    _refuse_call(line, target)
    _refuse_extra(line, target)
    try:
        with line.open(line, target) as heap:
            with shown_for(heap):
                answered = ask(line.command, heap, line.options, _calls(line, heap))
            known = len(heap.target.warnings)
    except NotPermitted as error:
        return _without_memory(line, target, error)
    return _with_late_warnings(answered, heap, known)


def _of_snapshot(answer: Callable[..., Any], path: str, looks: tuple[SnapshotWithBlocks, ...], options: Common) -> Any:
    return answer(looks[-1], path, options)


def _without_memory(line: CommandLine, target: Subject, error: NotPermitted) -> Result:
    """Answer a command about a process whose mappings gdbheap may not read, from the facts that any user may read.
    Print the reason on standard error.

    Raises ``error`` if the command has no such answer."""
    if isinstance(target, (str, Stored)) or int(str(target)) == os.getpid() or line.command.without_memory is None:
        raise error
    try:
        answer = line.command.without_memory(target)
    except (GdbheapError, OSError):
        raise error from None
    described = {"kind": "process", "pid": int(str(target)), "core": None, "exe": None}
    complain(str(error))
    reasons = [str(error)] if line.options.json else []
    info = TargetInfo([described], reasons, [], True, answer.rss.bytes, refused=True)
    return Result(line.command, line.options, info, answer, answer)


def _about_two_targets(line: CommandLine) -> Result:
    first, second = _targets(line)
    with line.open(line, first) as one, line.open(line, second) as other:
        with shown_for(one), shown_for(other):
            answered = ask_of(line.command, (one, other), [one, other], line.options)
        known = [len(heap.target.warnings) for heap in (one, other)]
    return _with_late_warnings(_with_late_warnings(answered, one, known[0]), other, known[1])


def _with_late_warnings(answered: Result, heap: Heap, known: int) -> Result:
    """Return the result with the heap's warnings after the first ``known``. The later warnings were added when the
    process was released or its copy ended.
    """
    return with_warnings(answered, heap.target.warnings[known:])


def _about_looks(line: CommandLine) -> Result:
    """Compare snapshots. Each word of the line names a snapshot, or a process or core that is read now."""
    if len(line.words) < 2:
        raise line.error(f"what should be compared? Give two or more snapshots, processes or cores ({line.help})")
    # Imported here, because imports take most of a command's start-up time.
    from gdbheap.snapshots.file import is_snapshot, read

    # If a snapshot lists all blocks, all blocks are also read from the processes with which it is compared.
    files = {word: read(word) for word in line.words if is_snapshot(word)}
    with_blocks = any(look.columns is not None for look in files.values())
    # Hold all processes before the first is read, because reading may take long.
    named = {word: line.subject(word) for word in line.words if word not in files}
    looks = [files[word] if word in files else _look(line, named[word], with_blocks) for word in line.words]
    return ask_about_looks(line.command, looks, line.options)


def _look(line: CommandLine, target: Subject, with_blocks: bool) -> SnapshotWithBlocks:
    from gdbheap.snapshots.snapshot import take

    with line.open(line, target) as heap, shown_for(heap):
        heap.disclosure.contents = not line.options.no_text
        return take(heap, with_blocks=with_blocks)


def _about_programs(line: CommandLine) -> Result:
    if line.started and (
        line.words or not isinstance(line.options, Several) or line.options.name or line.options.cgroup
    ):
        raise line.error("give either processes or a command after --")
    return ask_of(line.command, _programs(line), [], line.options)


def _programs(line: CommandLine) -> Programs:
    """Return the processes that the line names, or chooses by options. Raises UsageError for a word that names no
    process."""
    from gdbheap.host.open_files import allow_many
    from gdbheap.targets.chosen_processes import Programs

    options = line.options
    if isinstance(options, Several):
        allow_many()
    for word in line.words:
        _check_noun(word)
    named = [_process(line, word) for word in line.words]
    if not isinstance(options, Several):
        return Programs(named, command=line.started)
    options.check_user(line.called, bool(named))
    return Programs(named, options.children, options.name, options.cgroup, line.started, user=options.user)


def _found(line: CommandLine, word: str) -> Named | str:
    """Return the subject that a word names: a process, whose folder is kept open from now on, or the path of a core.

    Return the process id itself if there is no such process, or if its folder cannot be opened. This is no error here,
    because the line may name many processes. Raises GdbheapError."""
    number = parse_target(word)
    try:
        return line.subject(word)
    except (NoTarget, NotPermitted):
        return number


def _process(line: CommandLine, word: str) -> Named:
    """Return the process that a word names. Raises UsageError if the word is a path."""
    target = _found(line, word)
    if isinstance(target, str):
        raise line.error(f"{target} is not a process")
    return target


def _about_reported(line: CommandLine) -> Result:
    """Answer a command about the subjects that the line names: one or more targets, snapshots, traces or recordings."""
    from gdbheap.sampling.series import is_series
    from gdbheap.snapshots.file import is_snapshot, read
    from gdbheap.tracing.log import is_call_log

    options, words = line.options, [os.path.expanduser(word) for word in line.words]
    picks = isinstance(options, Several) and (options.children or options.name or options.cgroup)
    if words and line.extra.coredump is None and not picks and all(map(is_series, words)):
        _refuse_clone(line)
        return ask_of(line.command, words, [], options)
    if line.extra.coredump is not None or (len(words) == 1 and not picks and not is_snapshot(words[0])):
        if len(words) == 1 and is_call_log(words[0]):
            _refuse_clone(line)
            return ask_of(line.command, words[0], [], options)
        return _about_target(line)
    if picks or (words and all(word.isdecimal() and find_file(word) is None for word in words)):
        _refuse_clone(line)
        return _about_programs(line)
    if len(words) == 1:
        return ask_about_looks(line.command, [read(words[0])], options)
    return _about_looks(dataclasses.replace(line, words=words))


def _refuse_clone(line: CommandLine) -> None:
    if line.extra.clone:
        raise line.error("--clone needs one process")


def _about_live(line: CommandLine) -> Result:
    """Answer about a process while it runs, or about a command that gdbheap starts."""
    from gdbheap.targets.following import LocalProcess, StartedProgram

    if line.started:
        _refuse_words(line, line.words)
        program = StartedProgram(line.started)
        answered = ask_of(line.command, program, [], line.options)
        return with_warnings(answered, [*program.warnings, *program.unread])
    if not line.words:
        raise line.error(f"which process? (see {line.help})")
    word, *rest = line.words
    if line.names_target:
        _check_noun(word)
    target = line.subject(word)
    if isinstance(target, str):
        raise line.error(f"{target} is not a process: only a live process can be followed")
    _take_argument(line, rest)
    process = LocalProcess(target)
    return ask_about_process(line.command, process, line.options)


def _about_command(line: CommandLine) -> Result:
    _refuse_words(line, line.words)
    return ask_of(line.command, tuple(line.started), [], line.options)


def _about_files(line: CommandLine) -> Result:
    if not line.words:
        raise line.error(f"which file? (see {line.help})")
    return ask_of(line.command, tuple(line.words), [], line.options)


def _about_log(line: CommandLine) -> Result:
    if not line.words:
        raise line.error(f"which trace? (see {line.help})")
    _refuse_words(line, line.words[1:])
    return ask_of(line.command, line.words[0], [], line.options)


def _about_source(line: CommandLine) -> Result:
    """Answer a query about a target, a snapshot or an export folder."""
    if line.extra.coredump is None and line.words and is_folder(line.words[0]):
        from gdbheap.export.source import Source

        _take_argument(line, line.words[1:])
        folder = Source(line.words[0], _no_target, line.words[0])
        return ask_of(line.command, folder, [], line.options)
    target = _targets(line)[0]
    met: list[TargetInfo] = []
    answered = ask_of(line.command, _source(line, target, met), [], line.options)
    return dataclasses.replace(answered, info=met[-1]) if met else answered


def _no_target(_names: Collection[str], _graph: bool | None) -> Gathered:
    raise UsageError("a folder already has its tables")


def _about_sources(line: CommandLine) -> Result:
    """Answer about the targets that the line names and the processes that its options choose."""
    from gdbheap.host.open_files import allow_many

    options = line.options
    if not isinstance(options, Several):
        raise TypeError("the options of a command about sources are those of Several")
    allow_many()
    named: list[Subject] = []
    if line.extra.coredump is not None:
        _refuse_words(line, line.words)
        named = [Stored(line.extra.coredump)]
    for word in line.words:
        _check_noun(word)
        named.append(_found(line, word))
    options.check_user(line.called, any(not isinstance(target, (str, Stored)) for target in named))
    if options.children or options.name is not None or options.cgroup is not None:
        from gdbheap.targets.chosen_processes import Programs

        processes = [target for target in named if not isinstance(target, (str, Stored))]
        pids = {int(str(process)) for process in processes}
        programs = Programs(processes, options.children, options.name, options.cgroup, user=options.user)
        named += [folder for folder in programs.folders() if folder.pid not in pids]
    elif not named:
        raise line.error(f"which process or core? (see {line.help})")
    met: list[TargetInfo] = []
    answered = ask_of(line.command, [_source(line, target, met) for target in named], [], options)
    return dataclasses.replace(answered, info=_together(met)) if met else answered


def _source(line: CommandLine, target: Subject, met: list[TargetInfo]) -> Source:
    """Return a source that opens the target only when its tables are wanted, and releases it afterwards. ``met``: the
    list to which facts about the target are added when it is opened."""
    from gdbheap.export.gathered import gather, gather_look
    from gdbheap.export.source import Source
    from gdbheap.report.words.findings import words_of
    from gdbheap.report.words.remarks import sentence_of
    from gdbheap.snapshots.file import is_snapshot, read

    def of_heap(names: Collection[str], graph: bool | None) -> Gathered:
        with line.open(line, target) as heap:
            heap.disclosure.contents = getattr(line.options, "with_contents", False)
            with shown_for(heap):
                found = gather(heap, words_of, names, graph)
            info, known = TargetInfo.of([heap]), len(heap.target.warnings)
        # Some warnings are added only when the process is released.
        met.append(dataclasses.replace(info, warnings=[*info.warnings, *heap.target.warnings[known:]]))
        return found

    def of_look(names: Collection[str], _graph: bool | None) -> Gathered:
        look = read(str(target))
        found, kept = gather_look(look, words_of, names), look.snapshot
        partial = bool(kept.partial or kept.damaged)
        met.append(
            TargetInfo(
                [{**kept.target, "kind": SNAPSHOT}],
                list(map(sentence_of, kept.warnings)),
                [],
                partial,
                kept.ledger.rss.bytes,
            )
        )
        return found

    is_kept = isinstance(target, str) and is_snapshot(target)
    return Source(str(target), of_look if is_kept else of_heap, is_kept=is_kept)


def _together(met: Sequence[TargetInfo]) -> TargetInfo:
    """Return one description of the targets: that of the only target, or the merged descriptions of several."""
    if len(met) == 1:
        return met[0]
    warnings = list(dict.fromkeys(warning for info in met for warning in info.warnings))
    damage = [place for info in met for place in info.damage]
    partial, refused = any(info.partial for info in met), any(info.refused for info in met)
    targets = [target for info in met for target in info.targets]
    return TargetInfo(targets, warnings, damage, partial, None, refused=refused)


def _about_session(line: CommandLine) -> Result:
    """Answer the commands of a session. The commands print their own documents, so the session itself has none."""
    from gdbheap.commands.shell.conversation import ShellSession
    from gdbheap.commands.shell.session_target import SessionTarget

    target = _targets(line)[0]
    with contextlib.closing(SessionTarget(line, target)) as kept:
        answered = ask_of(line.command, ShellSession(kept, line.options, answer_about), [], line.options)
    return dataclasses.replace(answered, options=dataclasses.replace(answered.options, json=False))


def _about_nothing(line: CommandLine) -> Result:
    _refuse_words(line, line.words)
    return ask_of(line.command, None, [], line.options)


ANSWERS: dict[Needs[Any], Callable[[CommandLine], Result]] = {
    TARGET: _about_target,
    PROCESS: _about_target,
    TWO_TARGETS: _about_two_targets,
    PROCESSES: _about_programs,
    MAYBE_PROCESS: _about_programs,
    PROGRAMS: _about_programs,
    REPORTED: _about_reported,
    LOOKS: _about_looks,
    FOLLOWED: _about_live,
    CALLED: _about_live,
    STARTED: _about_command,
    FILES: _about_files,
    LOG: _about_log,
    SOURCE: _about_source,
    SOURCES: _about_sources,
    SESSION: _about_session,
    NOTHING: _about_nothing,
}


def _targets(line: CommandLine) -> list[Subject]:
    """Return the processes and cores that a line names. The words after them become the command's argument."""
    count = line.command.needs.targets
    if line.extra.coredump is not None:
        if count != 1:
            raise line.error("--coredump replaces one target, but this command needs several")
        _take_argument(line, line.words)
        return [Stored(line.extra.coredump)]
    named, rest = line.words[:count], line.words[count:]
    if line.names_target and isinstance(line.options, (Addressed, MaybeAddressed)) and len(named) == len(rest) == 1:
        _check_order(line, named[0], rest[0])
    for word in named if line.names_target else ():
        _check_noun(word)
    if len(named) < count:
        raise line.error(f"which {'other ' if named else ''}process or core? (see {line.help})")
    _take_argument(line, rest)
    return [line.subject(word) for word in named]


def _check_order(line: CommandLine, target: str, address: str) -> None:
    if _may_be_target(address) and not _may_be_target(target):
        raise line.error(f"the target comes first: {line.called} {one_line(address)} {one_line(target)}")


def _may_be_target(word: str) -> bool:
    return word.isdecimal() or find_file(word) is not None


def _check_noun(target: str) -> None:
    """Raise UsageError if the word for the target looks like a command's name and is not the name of a file."""
    if target.isidentifier() and find_file(target) is None:
        meant = did_you_mean(target, COMMANDS)
        what = f"{target!r} is not a command, a process or a file{meant}"
        raise UsageError(f"gdbheap: {what} ('gdbheap --help' lists all)")


def _take_argument(line: CommandLine, words: list[str]) -> None:
    """Set the command's argument from the words after the target: an address, a file, a function or a query. Raises
    UsageError."""
    for kind, argument, name in ((Filed, FILE, "file"), (Called, FUNCTION, "function"), (Queried, QUERY, "query")):
        if isinstance(line.options, kind):
            _refuse_words(line, words[1:], words)
            if not words:
                raise line.error(f"which {name}? {line.usual} {argument.metavar}")
            setattr(line.options, name, words[0])
            line.options.check()
            return
    if not isinstance(line.options, (Addressed, MaybeAddressed)):
        _refuse_words(line, words)
        return
    _refuse_words(line, words[1:], words)
    if not words and isinstance(line.options, MaybeAddressed):
        return
    if not words:
        raise line.error(f"which address? {line.usual} {ADDRESS.metavar}")
    if is_name(words[0]):
        line.options.name = words[0]
        return
    try:
        line.options.address = parse_address(words[0])
    except ValueError as error:
        raise line.error(str(error)) from None


def _refuse_words(line: CommandLine, words: list[str], shown: list[str] | None = None) -> None:
    if words:
        typed = " ".join(shown or words)
        raise line.error(f"unrecognized arguments: {typed} (see {line.help})")


def _refuse_call(line: CommandLine, target: Subject) -> None:
    """Raise UsageError if the command would call a function in a core or in a copy."""
    call = line.command.call_for(line.options)
    if isinstance(target, (str, Stored)) and line.command.needs is PROCESS:
        name = name_of(target)
        # Imported here, because imports take most of a command's start-up time.
        from gdbheap.tracing.log import is_call_log

        then = f"; 'gdbheap calls {plain_word(name, 'TRACE')}' summarizes the trace" if is_call_log(name) else ""
        raise line.error(f"{name} is not a process: this command calls a function in a live process{then}")
    if isinstance(target, (str, Stored)) and call is not None:
        raise line.error(call.on_core)
    if line.extra.clone and call is not None:
        raise line.error("this command calls into the process: leave out --clone")


def _refuse_extra(line: CommandLine, target: Subject) -> None:
    """Raise UsageError for options without effect: --exe and --sysroot for a process, --clone for a core."""
    is_core = isinstance(target, (str, Stored))
    if is_core and line.extra.clone:
        raise line.error("--clone needs a process")
    if not is_core and (line.extra.exe is not None or line.extra.sysroot is not None):
        raise line.error("--exe and --sysroot need a core")


def _calls(line: CommandLine, heap: Heap) -> LocalCalls | None:
    """Return the object that can call functions in the target; None if the command calls no function, or if gdbheap
    does not trace the target."""
    from gdbheap.targets.process import Process

    target = heap.target
    if line.command.call is None or not isinstance(target, Process) or target.tracer is None:
        return None
    from gdbheap.commands.inferior_calls.local_calls import (
        LocalCalls,  # Few commands make calls; all others start faster without this import.
    )

    return LocalCalls(target, target.tracer)
