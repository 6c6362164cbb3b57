"""The finding ``other-allocator``: a malloc other than glibc's."""
