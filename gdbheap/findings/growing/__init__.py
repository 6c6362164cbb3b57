"""The finding ``growing``: the rule that detects it, and its texts."""
