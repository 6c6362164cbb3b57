"""The finding ``tracemalloc``: the tables in which Python's own tracer records each block."""
