"""The finding ``runtime-*``: memory of recognised runtimes and servers that gdbheap cannot walk."""
