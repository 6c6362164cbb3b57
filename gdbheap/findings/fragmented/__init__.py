"""The finding ``fragmented``: the rule that detects it, and its texts."""
