"""The finding ``uncollectable-cycles``: its rule, and its words."""
