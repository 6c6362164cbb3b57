"""tcmalloc of gperftools: its spans, size classes and thread caches."""
