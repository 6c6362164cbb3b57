"""The finding ``free-lists``: the rule that detects it, and its texts."""
