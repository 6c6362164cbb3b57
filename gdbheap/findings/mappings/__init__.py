"""The finding ``mappings``: the rule that detects it, and its texts."""
