"""Recorded calls of an allocator: the log, its recorder, and its analysis."""
