"""The shell's ``gdbheap``."""
