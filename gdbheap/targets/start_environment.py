"""The environment with which a program was started, as the kernel put it on the first thread's stack (execve(2)).

Below the random bytes of AT_RANDOM lie, ascending: argc, the pointers to the arguments, a null, the pointers to the
environment, a null, and the auxiliary vector. Above the random bytes lie the texts of the arguments, of the environment
and, last, of the program's path (AT_EXECFN). Cores contain all of this. A program may change the pointers (glibc copies
GLIBC_TUNABLES, setenv moves all pointers), but not the texts.
"""

from __future__ import annotations

from contextlib import suppress
from os.path import basename, dirname

from gdbheap.errors import Fault
from gdbheap.targets.elf import LoadedObject
from gdbheap.targets.target import AT_ENTRY, AT_RANDOM, Target

AT_EXECFN = 31
# The most pointers, the most bytes of the program's name, and the most bytes of all texts. The kernel allows a quarter
# of the stack's limit.
MAX_ENTRIES, MAX_NAME = 4 << 10, 4 << 10
MAX_TEXT = 2 << 20


def initial_environment(target: Target) -> dict[str, str] | None:
    """Return the variables by name; None if they cannot be found or were overwritten.

    Some programs overwrite the variables with their title (setproctitle, PostgreSQL, nginx). Texts that cannot be read,
    or are not ``NAME=VALUE``, are left out. Up to 2.37 glibc writes zeros over the colons of GLIBC_TUNABLES. Each
    tunable is then returned as a variable of its own.
    """
    stack, place = target.main_stack, _last_argument(target)
    if stack is None or place is None:
        return None
    last, count = place
    end = target.auxv.get(AT_EXECFN, 0)
    end = end if last < end < stack.end else stack.end
    texts = target.space.read_available(last, min(end - last, MAX_TEXT)).split(b"\0")
    found: dict[str, str] = {}
    for text in texts[1:]:
        name, equals, value = text.decode("utf-8", "replace").partition("=")
        if equals and name:
            found.setdefault(name, value)
    return found if found or not count else None


def started_as(target: Target) -> str:
    """Return the file name with which the program was started, perhaps the name of a link; "" if unknown.

    The file name of AT_EXECFN is returned if the first argument begins with the same file name. The two names may
    differ: for a script AT_EXECFN is not the interpreter, and a shell may pass any first argument.
    """
    with suppress(Fault):
        path = target.space.cstring(target.auxv.get(AT_EXECFN, 0), MAX_NAME).decode("utf-8", "replace")
        first = target.space.cstring(_first_argument(target), MAX_NAME).decode("utf-8", "replace")
        name = basename(path)
        return name if name and basename(first.partition(" ")[0]) == name else ""
    return ""


def path_as_started(target: Target, loaded: LoadedObject) -> str:
    """Return the path of a loaded object; for the program, the path of the link that started it.

    An example of such a link is redis-server, whose file has another name in some distributions.
    """
    if not loaded.contains(target.auxv.get(AT_ENTRY, 0)):
        return loaded.path
    name = started_as(target)
    if not name or name == basename(loaded.path):
        return loaded.path
    executed = executed_file(target)
    return executed if executed.startswith("/") else f"{dirname(loaded.path)}/{name}"


def executed_file(target: Target) -> str:
    """Return the path with which the program was executed (AT_EXECFN); for a script, the script's own path; "" if
    unknown.
    """
    with suppress(Fault):
        return target.space.cstring(target.auxv.get(AT_EXECFN, 0), MAX_NAME).decode("utf-8", "replace")
    return ""


def _first_argument(target: Target) -> int:
    """Return the address of the first argument's text; 0 if it is not found.

    The search looks for argc: a number that is followed by as many pointers to arguments, and a null.
    """
    stack, place = target.main_stack, target.auxv.get(AT_RANDOM, 0)
    if stack is None:
        return 0
    words = _words_before(target, stack.start, place)
    vector = _vector(target, words, place) or 0
    ends = [at for at in range(vector - 1) if not words[at]]
    end = ends[-1] if ends else 0
    counts = (at for at in range(end - 1, -1, -1) if words[at] == end - 1 - at)
    at = next(counts, None)
    return 0 if at is None else words[at + 1]


def _words_before(target: Target, low: int, place: int) -> tuple[int, ...]:
    start = max(low, (place & ~15) - target.machine.word * MAX_ENTRIES)
    return target.machine.words_of(target.space.read_available(start, place - start))


def _last_argument(target: Target) -> tuple[int, int] | None:
    """Return the address of the last argument's text, and the number of environment texts after it.

    Return None if they are not found. The pointer to the last argument is followed by a null, the pointers to the
    environment, another null and the auxiliary vector.
    """
    stack, place = target.main_stack, target.auxv.get(AT_RANDOM, 0)
    if stack is None:
        return None
    words = _words_before(target, stack.start, place)
    vector = _vector(target, words, place)
    if vector is None or vector < 1 or words[vector - 1]:
        return None
    first = vector - 1
    while first and words[first - 1]:
        first -= 1
    last = words[first - 2] if first >= 2 else 0
    return (last, vector - 1 - first) if last in stack else None


def _vector(target: Target, words: tuple[int, ...], place: int) -> int | None:
    """Return the index of the word at which the auxiliary vector begins; None if it is not found.

    The vector contains AT_RANDOM with the value ``place``. The pairs before AT_RANDOM belong to the vector as long as
    they equal pairs of the target's auxiliary vector.
    """
    pairs = zip(range(len(words)), words, words[1:])
    at = next((index for index, key, value in pairs if key == AT_RANDOM and value == place), None)
    while at is not None and at >= 2 and target.auxv.get(words[at - 2]) == words[at - 1]:
        at -= 2
    return at
