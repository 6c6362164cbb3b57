"""The finding ``thread-tops``: the rule that detects it, and its texts."""
