"""Shared by the answers: the owner of each byte, names of blocks, paths, records."""
