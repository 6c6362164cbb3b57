"""The contents of Python's blocks in use: objects of a type, buffers that objects own, or unknown data."""
