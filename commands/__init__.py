"""The commands, one file each, for gdb and for the shell; installed as gdbheap.commands.

``surface`` has what they share, and ``inferior_calls`` what calls functions of the process; ``gdb`` and ``shell`` are
the two places where a user types them. Only ``gdb`` imports gdb."""
