"""The finding ``mimalloc-empty``: the rule that detects it, and its texts."""
