"""The finding ``growing-buffers``: copies that realloc() left in holes when it moved buffers."""
