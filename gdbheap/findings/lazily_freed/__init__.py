"""The finding ``lazily-freed``: the rule that detects it, and its texts."""
