"""The commands inside gdb. Nothing outside of this folder imports gdb."""
