"""The finding ``tracemalloc``: the rule that detects it, and its texts."""
