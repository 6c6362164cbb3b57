"""The finding ``huge-pages``: its rule, and its words."""
