"""The finding ``leak-like``: one container that keeps nearly all objects of a type."""
