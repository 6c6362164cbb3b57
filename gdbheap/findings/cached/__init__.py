"""The finding ``cached-*``: free blocks in threads' caches."""
