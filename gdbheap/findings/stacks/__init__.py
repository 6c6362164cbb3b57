"""The finding ``stacks``: the stacks of many threads."""
