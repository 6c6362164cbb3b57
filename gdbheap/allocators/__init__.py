"""Who handed these bytes out: glibc's arenas, chunks and thread caches; CPython's arenas, pools and blocks."""
