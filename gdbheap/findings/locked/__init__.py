"""The finding ``locked``: the rule that detects it, and its texts."""
