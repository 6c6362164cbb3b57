"""The finding ``after-fork``: the rule that detects it, and its texts."""
