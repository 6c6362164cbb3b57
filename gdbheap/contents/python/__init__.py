"""The contents of a used block in Python: an object of a type, a buffer that an object owns, or something unknown."""
