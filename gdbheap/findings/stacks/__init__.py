"""The finding ``stacks``: its rule, and its words."""
