"""The script that gdb runs at its start, because of the line that ``gdbheap install`` adds to gdbinit. It defines
gdbheap's commands. The first command that is used loads gdbheap.

The script imports nothing of gdbheap: it makes the commands from ``help.txt``. The script ``gdbheap`` in the same
folder does the loading. ``start.py`` prints nothing, except a warning about a file ``gdbheap`` in the current folder,
which ``gdb -x gdbheap`` would run.
"""

from __future__ import annotations

import os
import stat

import gdb

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

# This works even if gdb itself runs this file, or a link to it.
FOLDER = os.path.dirname(os.path.realpath((lambda: None).__code__.co_filename))
SCRIPT, HELP = os.path.join(FOLDER, "gdbheap"), os.path.join(FOLDER, "help.txt")
HEAP, GDBHEAP = PREFIXES = ("heap", "gdbheap")
# The mark that begins each part of help.txt, and the placeholder there for a command's prefix.
PART, PREFIX = "\f", "{prefix}"
FUNCTION = "$"
HELP_IN_SHORT = "he"
WINDOW, LAYOUT = "heap", "tui new-layout heap src 1 heap 2 status 0 cmd 1"


class Start:
    """gdbheap in this gdb: its commands and functions, both before and after the package is loaded.

    ``prefixes``: the first words of its commands. ``heap`` is missing if another extension has that command.
    ``had_target``: whether gdb has had a process or a core while gdbheap was there.
    """

    def __init__(self, older: Start | None) -> None:
        self.folder, self.had_target = FOLDER, False
        self._table: Any = None
        is_ours = older is not None and HEAP in older.prefixes
        self.prefixes: list[str] = [
            prefix for prefix in PREFIXES if prefix == GDBHEAP or is_ours or not _is_taken(prefix)
        ]
        self._first_line = ""

    @property
    def is_loaded(self) -> bool:
        """Whether the package was loaded, because a command, a function or the window was used."""
        return self._table is not None

    def define(self) -> None:
        """Define all commands, functions and the window from their help texts. The package is loaded only when one is
        used.
        """
        with open(HELP, encoding="utf-8") as stream:
            parts = stream.read().split(PART)
        for part in parts[1:]:
            name, _, text = part.partition("\n")
            self._define(name, text.rstrip("\n"))
        if HEAP in self.prefixes and not _is_taken(HELP_IN_SHORT):
            # Until now gdb has accepted "he" for "help". With the command "heap", it would be ambiguous.
            gdb.execute(f"alias -a {HELP_IN_SHORT} = help", to_string=True)
        if hasattr(gdb, "register_window_type"):
            try:
                gdb.register_window_type(WINDOW, lambda window: self.load().window(window))
                gdb.execute(LAYOUT, to_string=True)
            except (gdb.error, RuntimeError):
                pass
        if hasattr(gdb.events, "new_thread"):
            gdb.events.new_thread.connect(self._note_target)

    def _define(self, name: str, text: str) -> None:
        if name.startswith(FUNCTION):
            Function(self, name[len(FUNCTION) :], text)
            return
        self._first_line = self._first_line or text.partition("\n")[0]
        for prefix in self.prefixes:
            LoadingCommand(self, prefix, name, text.replace(PREFIX, prefix))

    def _note_target(self, _event: object) -> None:
        self.had_target = True
        gdb.events.new_thread.disconnect(self._note_target)

    def load(self) -> Any:
        """Load gdbheap at the first call, and return its table of commands and functions. Raises gdb.GdbError, with a
        message of one line, if it cannot be loaded.
        """
        if self._table is None:
            with open(SCRIPT, encoding="utf-8") as stream:
                text = stream.read().partition("\npython\n")[2].rpartition("\nend")[0]
            exec(compile(text, SCRIPT, "exec"), {"_gdbheap_script": SCRIPT})
        return self._table

    def register(self, register: Callable[[Start], Any]) -> None:
        """Store the table of commands and functions of the loaded package. Only the first call has an effect.

        ``register``: a function that makes the table.
        """
        if self._table is None:
            self._see_others()
            self._table = register(self)

    def _see_others(self) -> None:
        """Stop using the command ``heap`` if another extension has defined it since, and print a line about this."""
        if HEAP in self.prefixes and not gdb.execute("help heap", to_string=True).startswith(self._first_line):
            self.prefixes.remove(HEAP)
        if HEAP not in self.prefixes:
            words = "gdbheap: another extension has the command 'heap'; use 'gdbheap' with the same commands.\n"
            gdb.write(words, gdb.STDERR)


class LoadingCommand(gdb.Command):
    """A gdb command. Its docstring is its help. It loads gdbheap when it is run, or when its options are completed."""

    def __init__(self, start: Start, prefix: str, noun: str, text: str) -> None:
        self.__doc__ = text
        self._start, self._prefix, self._noun = start, prefix, noun
        kind = gdb.COMMAND_RUNNING if noun == "attach" else gdb.COMMAND_DATA
        super().__init__((prefix + " " + noun).strip(), kind, prefix=not noun)

    def invoke(self, line: str, from_tty: bool) -> None:
        """Run the command. ``line``: the text that was typed after its name. Raises gdb.GdbError, with a message of one
        line, if the command fails.
        """
        self._start.load().commands[self._noun].invoke(self._prefix, line)

    def complete(self, text: str, word: str | None) -> list[str]:
        """Return the possible completions of ``text``.

        gdb first calls this with None as ``word``, only to learn where words end. The result is then ignored.
        """
        return [] if word is None else self._start.load().commands[self._noun].complete(text, word)


class Function(gdb.Function):
    """A convenience function of gdb, such as ``$_heap_text``. Its docstring is its help."""

    def __init__(self, start: Start, name: str, text: str) -> None:
        self.__doc__ = text
        self._start, self._name = start, name
        super().__init__(name)

    def invoke(self, *args: gdb.Value) -> int | gdb.Value:
        """Call the function and return its value. Raises gdb.GdbError, with a message of one line, if the function
        fails.
        """
        answer: int | gdb.Value = self._start.load().functions[self._name](args)
        return answer


def _is_taken(name: str) -> bool:
    """Return whether gdb has a command with exactly this name."""
    return name in gdb.execute("complete " + name, to_string=True).split("\n")


def _look_here() -> None:
    """Print a one-line warning if the current folder has a file that ``gdb -x gdbheap`` would run.

    A link is not followed: it may point to a file that blocks each access.
    """
    try:
        status = os.lstat("gdbheap")
        leads = os.readlink("gdbheap") if stat.S_ISLNK(status.st_mode) else None
    except OSError:
        return
    is_own = leads == SCRIPT if leads is not None else os.path.samestat(status, os.lstat(SCRIPT))
    if not is_own and (leads is not None or stat.S_ISREG(status.st_mode)):
        words = "the current folder has a file 'gdbheap', which 'gdb -x gdbheap' would run; 'heap' does not run it"
        gdb.write("gdbheap: " + words + "\n", gdb.STDERR)


def _let_gdb_look() -> None:
    """Add this folder to gdb's source path, so that ``gdb -x gdbheap`` finds the script. This is not possible if the
    folder's path contains a colon.
    """
    if ":" not in FOLDER:
        quoted = "".join("\\" + letter if letter in " \t\\\"'" else letter for letter in FOLDER)
        gdb.execute("directory " + quoted, to_string=True)


def _begin() -> None:
    """Define all commands, unless this installation has already defined them. If gdb runs this script of several
    installations, the last one defines the commands. An installation that is already loaded keeps them.
    """
    older = getattr(gdb, "gdbheap_start", None)
    if older is None:
        _look_here()
    if older is None or (not older.is_loaded and older.folder != FOLDER):
        _let_gdb_look()
        fresh = Start(older)
        try:
            fresh.define()
        except OSError as error:
            gdb.write(f"gdbheap: not loaded: {error}: install it again\n", gdb.STDERR)
        setattr(gdb, "gdbheap_start", fresh)  # noqa: B010


_begin()
