"""The finding ``large-chunks``: the rule that detects it, and its texts."""
