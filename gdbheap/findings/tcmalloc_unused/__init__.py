"""The finding ``tcmalloc-unused``: its rule, and its words."""
