"""mimalloc, both CPython's own copy and the library: its segments, pages and blocks."""
