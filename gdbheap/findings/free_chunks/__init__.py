"""The finding ``free-chunks``: the rule that detects it, and its texts."""
