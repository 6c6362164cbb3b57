"""The finding ``pinned-pages``: the rule that detects it, and its texts."""
