"""The commands inside gdb. Only this folder imports gdb."""
