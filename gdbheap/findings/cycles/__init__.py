"""The finding ``cycles``: the rule that detects it, and its texts."""
