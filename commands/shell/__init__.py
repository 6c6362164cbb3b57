"""The ``gdbheap`` command of a shell: its command lines, sessions and MCP server, and its installation into gdb."""
