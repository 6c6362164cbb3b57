"""musl's malloc since 1.2.1 (mallocng): its groups and slots."""
