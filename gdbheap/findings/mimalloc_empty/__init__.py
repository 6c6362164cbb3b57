"""The finding ``mimalloc-empty``: pages and slices of mimalloc without a block in use."""
