"""The finding ``pinned-pages``: its rule, and its words."""
