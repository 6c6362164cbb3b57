"""The finding ``cached``: its rule, and its words."""
