"""The commands, one file each, for gdb and for the shell; installed as gdbheap.commands.

Only gdb_register, gdb_target and gdb_call import gdb."""
