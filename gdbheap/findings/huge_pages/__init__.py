"""The finding ``huge-pages``: the rule that detects it, and its texts."""
