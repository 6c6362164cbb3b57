"""The finding ``sparse-huge-pages``: used memory that is resident only because it is in huge pages."""
