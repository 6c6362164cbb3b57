"""The finding ``main-top``: the rule that detects it, and its texts."""
