"""The finding ``leak-like``: the rule that detects it, and its texts."""
