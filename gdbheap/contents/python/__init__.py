"""What a used block holds: a Python object of a type, a buffer that an object owns, or something unknown."""
