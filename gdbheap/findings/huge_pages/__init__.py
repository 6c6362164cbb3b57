"""The finding ``huge-pages``: free memory that is resident only because it is in huge pages."""
