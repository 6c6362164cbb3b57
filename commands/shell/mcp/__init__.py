"""``gdbheap mcp``: a server of the Model Context Protocol, for coding agents and other programs."""
