"""The finding ``free-chunks``: its rule, and its words."""
