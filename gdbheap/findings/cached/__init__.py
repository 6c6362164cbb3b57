"""The finding ``cached``: the rule that detects it, and its texts."""
