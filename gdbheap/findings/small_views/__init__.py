"""The finding ``small-views``: the rule that detects it, and its texts."""
