"""The finding ``pymalloc-arenas``: its rule, and its words."""
