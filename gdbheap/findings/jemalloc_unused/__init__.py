"""The finding ``jemalloc-unused``: the rule that detects it, and its texts."""
