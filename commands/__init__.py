"""The commands, one file each, for gdb and for the shell; installed as gdbheap.commands.

What they share is in ``surface``, what calls functions of the process in ``calls``; ``gdb`` and ``shell`` are the two
places where a user types them. Only ``gdb`` imports gdb."""
