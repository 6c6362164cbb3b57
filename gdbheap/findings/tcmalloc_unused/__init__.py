"""The finding ``tcmalloc-unused``: the rule that detects it, and its texts."""
