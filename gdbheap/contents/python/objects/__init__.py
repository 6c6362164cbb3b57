"""Python objects and what they own: where each lies, its size, and its references."""
