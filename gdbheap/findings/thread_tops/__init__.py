"""The finding ``thread-tops``: free memory at the ends of threads' arenas."""
