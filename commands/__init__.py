"""The commands, one file each, for gdb and for the shell; installed as gdbheap.commands.

Only gdb_register and gdb_target import gdb."""
