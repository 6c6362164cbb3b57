"""The finding ``growing-buffers``: the rule that detects it, and its texts."""
