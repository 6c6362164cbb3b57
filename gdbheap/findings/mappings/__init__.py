"""The finding ``mappings``: its rule, and its words."""
