"""The finding ``growing``: growth since an earlier snapshot."""
