"""The finding ``holder``: the rule that detects it, and its texts."""
