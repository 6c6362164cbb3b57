"""The finding ``pymalloc-arenas``: the rule that detects it, and its texts."""
