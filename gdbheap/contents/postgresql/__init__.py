"""The memory contexts of a PostgreSQL backend, and the blocks that belong to them."""
