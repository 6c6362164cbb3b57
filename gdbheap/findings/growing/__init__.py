"""The finding ``growing``: its rule, and its words."""
