"""The finding ``cycles``: its rule, and its words."""
