"""The finding ``stacks``: the rule that detects it, and its texts."""
