"""The finding ``slack``: its rule, and its words."""
