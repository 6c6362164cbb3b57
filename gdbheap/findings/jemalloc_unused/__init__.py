"""The finding ``jemalloc-unused``: extents of jemalloc without a block in use."""
