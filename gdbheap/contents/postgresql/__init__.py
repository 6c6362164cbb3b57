"""The contents of a PostgreSQL backend: its memory contexts."""
