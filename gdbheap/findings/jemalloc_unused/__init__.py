"""The finding ``jemalloc-unused``: its rule, and its words."""
