"""The finding ``slack``: the rule that detects it, and its texts."""
