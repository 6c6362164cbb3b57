"""The commands, each in a file, for gdb and for the shell; they are installed as gdbheap.commands.

The package ``surface`` has the code that all commands share. ``inferior_calls`` calls functions in the process. ``gdb``
and ``shell`` are the two places where a user types commands. Only ``gdb`` imports gdb.
"""
