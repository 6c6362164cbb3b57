"""The finding ``locked``: its rule, and its words."""
