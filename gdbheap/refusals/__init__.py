"""Explain why a process cannot be read, and what would help."""
