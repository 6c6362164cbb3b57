"""The finding ``jemalloc-arenas``: its rule, and its words."""
