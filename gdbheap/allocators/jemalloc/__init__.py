"""jemalloc: its arenas, extents, slabs and thread caches."""
