"""Observe calls in a running process: find what grows its heap, and catch chosen malloc calls with their stacks."""
