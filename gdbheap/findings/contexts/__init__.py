"""The finding ``postgresql-context``: the largest memory contexts of a PostgreSQL backend."""
