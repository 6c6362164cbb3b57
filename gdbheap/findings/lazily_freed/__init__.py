"""The finding ``lazily-freed``: its rule, and its words."""
