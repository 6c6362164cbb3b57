"""The finding ``contexts``: the rule that detects it, and its texts."""
