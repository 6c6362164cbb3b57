"""The commands, each in a file, for gdb and for the shell; they are installed as gdbheap.commands.

``surface`` has what all commands share, ``inferior_calls`` what calls functions in the process. ``gdb`` and ``shell``
are the two places where a user types commands. Only ``gdb`` imports gdb."""
