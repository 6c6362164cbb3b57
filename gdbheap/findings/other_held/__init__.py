"""The finding ``other-held``: its rule, and its words."""
