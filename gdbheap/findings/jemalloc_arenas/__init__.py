"""The finding ``jemalloc-arenas``: jemalloc arenas with their own partly filled slabs."""
