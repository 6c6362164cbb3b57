"""Code that answers share: the owner of each byte, names of blocks, paths from roots, and records."""
