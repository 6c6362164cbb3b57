"""The finding ``other-allocator``: the rule that detects it, and its texts."""
