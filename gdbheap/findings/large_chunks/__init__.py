"""The finding ``large-chunks``: holes that large buffers left inside arenas."""
