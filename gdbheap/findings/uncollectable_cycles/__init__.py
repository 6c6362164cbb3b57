"""The finding ``uncollectable-cycles``: the rule that detects it, and its texts."""
