"""The finding ``other-held``: the rule that detects it, and its texts."""
