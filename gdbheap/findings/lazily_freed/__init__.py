"""The finding ``lazily-freed``: memory of mappings that the program freed by madvise(MADV_FREE)."""
