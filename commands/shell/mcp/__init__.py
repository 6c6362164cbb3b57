"""``gdbheap mcp``: answers for programs that speak the Model Context Protocol, such as coding agents."""
