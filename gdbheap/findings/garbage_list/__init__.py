"""The finding ``garbage-list``: objects in gc.garbage."""
