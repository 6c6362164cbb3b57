"""The contents of blocks in use of Python: objects of a type, buffers that objects own, or unknown data."""
