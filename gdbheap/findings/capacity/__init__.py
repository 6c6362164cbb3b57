"""The finding ``capacity``: its rule, and its words."""
