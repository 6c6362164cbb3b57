"""The finding ``leak-like``: its rule, and its words."""
