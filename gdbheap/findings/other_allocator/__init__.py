"""The finding ``other-allocator``: its rule, and its words."""
