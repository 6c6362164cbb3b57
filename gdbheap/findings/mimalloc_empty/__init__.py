"""The finding ``mimalloc-empty``: its rule, and its words."""
