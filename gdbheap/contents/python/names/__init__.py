"""What types, objects and references are called."""
