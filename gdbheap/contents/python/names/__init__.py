"""The names of types, objects and references, for people and as Python expressions."""
