"""The finding ``large-chunks``: its rule, and its words."""
