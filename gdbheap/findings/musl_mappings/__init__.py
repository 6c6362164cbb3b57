"""The finding ``musl-mappings``: its rule, and its words."""
