"""mimalloc: CPython's and the library's segments, pages and blocks."""
