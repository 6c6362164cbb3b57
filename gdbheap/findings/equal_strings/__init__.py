"""The finding ``equal-strings``: its rule, and its words."""
