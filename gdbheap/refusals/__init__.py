"""Explain why a process cannot be read, and what the user can do."""
