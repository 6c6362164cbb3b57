"""The finding ``pinned-pages``: a few blocks pin pages of malloc's arenas."""
