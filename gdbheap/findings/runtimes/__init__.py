"""The finding ``runtimes``: the rule that detects it, and its texts."""
