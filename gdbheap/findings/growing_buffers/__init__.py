"""The finding ``growing-buffers``: its rule, and its words."""
