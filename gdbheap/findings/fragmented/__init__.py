"""The finding ``fragmented-*``: blocks that would fit into fewer jemalloc slabs, tcmalloc spans or mimalloc pages."""
