"""The finding ``musl-mappings``: the rule that detects it, and its texts."""
