"""The ``gdbheap`` command of a shell."""
