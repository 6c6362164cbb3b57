"""The finding ``tcmalloc-unused``: free pages of tcmalloc's page heap."""
