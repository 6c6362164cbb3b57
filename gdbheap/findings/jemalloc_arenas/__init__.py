"""The finding ``jemalloc-arenas``: the rule that detects it, and its texts."""
