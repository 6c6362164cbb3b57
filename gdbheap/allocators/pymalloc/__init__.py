"""CPython's pymalloc: its arenas, pools and blocks."""
