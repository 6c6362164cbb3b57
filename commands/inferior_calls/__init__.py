"""Calls of functions in a live process, after the proof that they cannot hang."""
