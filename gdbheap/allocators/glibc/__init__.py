"""glibc's malloc: its arenas, chunks, bins and thread caches."""
