"""Follow a running process at its calls: find what grows its heap, and which stacks make a given call."""
