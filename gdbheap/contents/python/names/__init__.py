"""The names of types, objects and references."""
