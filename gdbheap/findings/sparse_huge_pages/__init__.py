"""The finding ``sparse-huge-pages``: its rule, and its words."""
