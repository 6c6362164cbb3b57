"""The finding ``uncollectable-cycles``: object cycles that the garbage collector does not free."""
