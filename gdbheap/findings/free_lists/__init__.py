"""The finding ``free-lists``: its rule, and its words."""
