"""The finding ``pymalloc-arenas``: a few blocks pin arenas of pymalloc."""
