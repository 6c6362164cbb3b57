"""The finding ``thread-tops``: its rule, and its words."""
