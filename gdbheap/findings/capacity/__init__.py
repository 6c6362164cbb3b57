"""The finding ``capacity``: the rule that detects it, and its texts."""
