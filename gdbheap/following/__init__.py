"""A running process at its calls: what grows its heap, who makes one kind of call."""
