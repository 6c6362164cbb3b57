"""The finding ``fragmented``: its rule, and its words."""
