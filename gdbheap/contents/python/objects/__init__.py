"""Python objects: the address, the size and the references of each object, and the blocks that it owns."""
