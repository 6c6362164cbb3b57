"""The finding ``free-lists``: objects that the interpreter keeps for reuse."""
