"""Calls of an allocator that were recorded: their log, how it is made, and what it says."""
