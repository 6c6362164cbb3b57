"""The finding ``tracemalloc``: its rule, and its words."""
