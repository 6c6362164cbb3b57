"""The finding ``equal-strings``: the rule that detects it, and its texts."""
